// ir::Program: the immutable executable form. The code that checks, times, stores or runs a program depends on this
// form and on nothing above it. Flat arrays of fixed-width records: the binary image consists of these arrays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/ids.h"
#include "gc3/base/result.h"
#include "gc3/model/collective.h"
#include "gc3/model/types.h"

namespace gc3::ir {

enum class Opcode : std::uint8_t {
#define GC3_OPCODE(name, xml, receives, sends, reads_local, writes_local, reduces, doc) name,
#include "gc3/ir/opcodes.def"
#undef GC3_OPCODE
};

struct OpcodeInfo {
  std::string_view name;
  std::string_view xml;
  bool receives;
  bool sends;
  bool reads_local;
  bool writes_local;
  bool reduces;
  std::string_view doc;

  // Whether it moves chunks; every opcode but nop and apply does.
  constexpr bool moves() const { return receives || sends || reads_local || writes_local; }
  // Whether the second operand of its reduction is dst.
  constexpr bool updates_dst() const { return reduces && !receives; }
  // Whether the data it sends is also in a buffer of its rank: in dst if it writes dst, else in src.
  constexpr bool keeps_sent() const { return sends && (writes_local || !receives); }
  constexpr bool makes_sense() const {
    const bool has_data = receives || reads_local;
    const bool has_place = sends || writes_local;
    const bool two_operands = reads_local && (receives || writes_local);
    return has_data == has_place && (reduces ? two_operands : !(receives && reads_local));
  }
};
inline constexpr OpcodeInfo kOpcodes[] = {
#define GC3_OPCODE(name, xml, receives, sends, reads_local, writes_local, reduces, doc) \
  {#name, xml, receives, sends, reads_local, writes_local, reduces, doc},
#include "gc3/ir/opcodes.def"
#undef GC3_OPCODE
};
inline constexpr std::size_t kOpcodeCount = std::size(kOpcodes);
static_assert(std::ranges::all_of(kOpcodes, &OpcodeInfo::makes_sense));
constexpr const OpcodeInfo& info(Opcode op) { return kOpcodes[static_cast<std::size_t>(op)]; }

inline constexpr std::uint32_t kNoRank = kNone;                // of a threadblock without a peer
inline constexpr std::uint64_t kMaxScratchChunks = 1U << 25U;  // in all ranks together; readers reject more

// One step of a threadblock. Unused operands are zero.
struct Instruction {
  Opcode opcode = Opcode::nop;
  model::Buffer src_buffer = model::Buffer::input;
  model::Buffer dst_buffer = model::Buffer::input;
  std::uint8_t has_dependents = 0;  // 1: some dependency names this step, so it must publish its completion
  std::uint32_t src_chunk = 0;      // of apply: its number in Compute::applications
  std::uint32_t dst_chunk = 0;
  std::uint32_t count = 0;      // consecutive chunks; 0 for nop; of apply: all of its operands
  std::uint32_t dep_begin = 0;  // dependencies[dep_begin .. dep_begin + dep_count)
  std::uint32_t dep_count = 0;
  bool operator==(const Instruction&) const = default;
};
static_assert(sizeof(Instruction) == 24);

// "Wait until threadblock `tb` of this rank has finished its step `step` (of the same tile)."
struct Dependency {
  std::uint32_t tb;    // index within the rank
  std::uint32_t step;  // index within that threadblock
  bool operator==(const Dependency&) const = default;
};

struct Threadblock {
  std::uint32_t send_peer = kNoRank;
  std::uint32_t recv_peer = kNoRank;
  std::uint32_t channel = 0;
  std::uint32_t first_instruction = 0;  // in Program::instructions
  std::uint32_t instruction_count = 0;
  bool operator==(const Threadblock&) const = default;
};

struct RankProgram {
  std::uint32_t first_tb = 0;  // in Program::threadblocks
  std::uint32_t tb_count = 0;
  std::uint32_t scratch_chunks = 0;
  bool operator==(const RankProgram&) const = default;
};

// Where the user wrote the instructions: a table of distinct lines, and an index into it for each instruction. A
// program that was read from XML or text has none of it.
struct Source {
  struct Line {
    std::uint32_t file = 0;  // in `files`
    std::uint32_t line = 0;
    std::uint32_t caller = kNone;  // the line, before this one in the table, that called the function of this one
    bool operator==(const Line&) const = default;
  };
  std::vector<std::string> files;
  std::vector<Line> lines;
  std::vector<std::uint32_t> line_of;  // per instruction; kNone: no line is known. Empty if nothing is known

  bool known() const { return !line_of.empty(); }
  bool operator==(const Source&) const = default;
};

// The switch groups of an instruction, by number; kNone: its messages are plain ones. A switch may multicast the sends
// of one group, which are of one value from one rank, and add up what the receives of one group are sent, all of which
// one rank adds to one sum. Whoever ignores groups executes plain messages, with the same result.
struct Switched {
  std::uint32_t multicast = kNone;  // of its send
  std::uint32_t reduction = kNone;  // of its receive
  bool operator==(const Switched&) const = default;
};

// What the steps of opcode `apply` compute. A chunk that one reads or writes is an operand: first those that are read.
struct Operand {
  model::Buffer buffer = model::Buffer::input;
  std::uint32_t chunk = 0;
  std::uint32_t length = 0;  // of one that is written: the number of its length; else 0
  bool operator==(const Operand&) const = default;
};
struct Application {
  std::uint32_t operation = 0;  // in CustomCollective::operations
  std::uint32_t first = 0;      // in Compute::operands
  std::uint32_t reads = 0;
  std::uint32_t writes = 0;
  bool operator==(const Application&) const = default;
};
// Applications stand in the order of their steps, operands in that of their applications. All chunks of one length have
// one shape, which is known when the program runs; each is named after a buffer of which it is the length.
struct Compute {
  std::vector<std::string> lengths;
  std::vector<Application> applications;
  std::vector<Operand> operands;

  std::span<const Operand> reads(const Application& a) const { return std::span(operands).subspan(a.first, a.reads); }
  std::span<const Operand> writes(const Application& a) const {
    return std::span(operands).subspan(a.first + a.reads, a.writes);
  }
  std::span<const Operand> operands_of(const Application& a) const {
    return std::span(operands).subspan(a.first, std::size_t{a.reads} + a.writes);
  }
  // What a step reads and writes, if it is of opcode `apply`.
  std::span<const Operand> reads(const Instruction& i) const {
    return i.opcode == Opcode::apply ? reads(applications[i.src_chunk]) : std::span<const Operand>();
  }
  std::span<const Operand> writes(const Instruction& i) const {
    return i.opcode == Opcode::apply ? writes(applications[i.src_chunk]) : std::span<const Operand>();
  }
  bool operator==(const Compute&) const = default;
};

// Layout: threadblocks stand in the order of their ranks, instructions in the order of their threadblocks, and
// dependencies in the order of their instructions, without gaps or sharing. dep_begin says where an instruction's
// dependencies would start even if it has none. So a file needs only the counts, and reading it gives an equal program.
struct Program {
  std::string name;
  model::Collective collective;
  model::Protocol protocol = model::Protocol::Simple;
  std::uint32_t instances = 1;  // informative: the number of instances the program was replicated to
  std::uint32_t slots = 1;      // FIFO slots per connection that the schedule needs to be free of deadlock
  std::vector<RankProgram> ranks;
  std::vector<Threadblock> threadblocks;
  std::vector<Instruction> instructions;
  std::vector<Dependency> dependencies;
  std::vector<Switched> switched;  // per instruction; empty: there are no groups
  Source source;
  Compute compute;

  // Whether its collective has named tensors, whose chunks differ in length; only such a program may apply operations.
  bool has_tensors() const { return collective.has_tensors(); }
  std::span<const Threadblock> tbs(std::uint32_t rank) const {
    return std::span(threadblocks).subspan(ranks[rank].first_tb, ranks[rank].tb_count);
  }
  std::span<const Instruction> steps(const Threadblock& tb) const {
    return std::span(instructions).subspan(tb.first_instruction, tb.instruction_count);
  }
  std::span<const Dependency> deps(const Instruction& i) const {
    return std::span(dependencies).subspan(i.dep_begin, i.dep_count);
  }
  // The chunks of the longest message.
  std::uint32_t max_count() const {
    std::uint32_t most = 1;
    for (const Instruction& i : instructions) {
      if (info(i.opcode).sends) most = std::max(most, i.count);
    }
    return most;
  }
  // Whether both do the same; where they were written does not matter.
  bool operator==(const Program& other) const {
    return name == other.name && collective == other.collective && protocol == other.protocol &&
           instances == other.instances && slots == other.slots && ranks == other.ranks &&
           threadblocks == other.threadblocks && instructions == other.instructions &&
           dependencies == other.dependencies && switched == other.switched && compute == other.compute;
  }
};

// " (rrc, ring.py:12)" for an instruction of which this is the source; " (rrc)" if its line is not known.
std::string in_brackets(std::string_view what, const Source& source, std::uint32_t instruction);

// GC3-C004 if its chunks differ in length or it computes, which `what` cannot do.
Status check_plain(const Program& program, std::string_view what);

}  // namespace gc3::ir
