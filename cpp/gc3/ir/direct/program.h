// ir::direct::Program: the executable form of one-sided programs. Ranks load from and store into each other's
// registered buffers; counters say when. Beside ir::Program, whose connections are FIFOs, it is the other half of the
// waist.
//
// A threadblock is a group of threads that all execute its steps in order. Nothing orders the threads among each other
// but `sync` and `barrier`. A signal, wait, release or acquire of several objects is executed by one thread for each:
// the k-th thread handles the k-th object. Between two calls of a program on a rank, all its threadblocks have ended.
//
// Facts about the machines that execute such programs: MSCCL++'s executor (microsoft/mscclpp, execution_kernel.hpp),
// NCCL's symmetric kernels, PyTorch's symmetric memory. docs/architecture.md has the rules of order and the proof.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/findings.h"
#include "gc3/base/ids.h"
#include "gc3/ir/program.h"
#include "gc3/model/collective.h"

namespace gc3::ir::direct {

enum class Op : std::uint8_t {
#define GC3_DIRECT_OP(name, objects, doc) name,
#include "gc3/ir/direct/ops.def"
#undef GC3_DIRECT_OP
};
enum class Objects : std::uint8_t { none, channel, semaphore, barrier };
struct OpInfo {
  std::string_view name;
  Objects objects;
  std::string_view doc;
};
inline constexpr auto kOps = std::to_array<OpInfo>({
#define GC3_DIRECT_OP(name, objects, doc) {#name, Objects::objects, doc},
#include "gc3/ir/direct/ops.def"
#undef GC3_DIRECT_OP
});
constexpr const OpInfo& info(Op op) { return kOps[static_cast<std::size_t>(op)]; }

enum class Access : std::uint8_t {
  plain,
  // Each element travels with a flag that tells of which call it is. A packet source waits for its flags; a packet
  // target sets them. Packets exist in scratch only. Packet chunk c lies where the plain chunks 2c and 2c + 1 lie.
  packet,
  // Through the switch, of a group of ranks: a source loads the sum over all ranks of the group, a target stores to all
  // of them.
  multicast,
  multicast_packet,
};
constexpr bool is_packet(Access a) { return a == Access::packet || a == Access::multicast_packet; }
constexpr bool is_multicast(Access a) { return a == Access::multicast || a == Access::multicast_packet; }

// A source or a target of a move: `count` consecutive chunks of the step.
struct Operand {
  std::uint32_t owner = 0;  // the rank whose buffer it is; of a multicast operand the number of the group
  std::uint32_t chunk = 0;
  model::Buffer buffer = model::Buffer::input;
  Access access = Access::plain;
  bool operator==(const Operand&) const = default;
};

struct Step {
  Op op = Op::sync;
  bool relaxed = false;       // signal, wait: orders the execution of the threads and makes nothing visible
  std::uint32_t count = 0;    // of a move: chunks
  std::uint32_t first = 0;    // of a move in Program::operands, otherwise in Program::objects
  std::uint32_t sources = 0;  // number of sources of a move; of the objects otherwise
  // Of a move; they stand after its sources. A move of packets without targets only waits for them.
  std::uint32_t targets = 0;
  // Of a move: the port channel whose proxy moves the data later, when the first thread has told it; kNone: the threads
  // do. A proxy does not wait for packets: it copies what is there.
  std::uint32_t channel = kNone;
  bool operator==(const Step&) const = default;
};

// Signals of `from` count at `to`. The n-th wait ends after the n-th signal, counted over all calls. Asynchronous moves
// and the signals of a port channel are executed by a proxy, in their order.
struct Channel {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  bool port = false;
  bool operator==(const Channel&) const = default;
};
struct Semaphore {
  std::uint32_t rank = 0;
  std::uint32_t initial = 0;
  bool operator==(const Semaphore&) const = default;
};
struct Barrier {
  std::uint32_t rank = 0;
  std::uint32_t threadblocks = 0;  // that come to it
  bool operator==(const Barrier&) const = default;
};
struct Group {  // of ranks that a switch reaches, ascending
  std::vector<std::uint32_t> ranks;
  bool operator==(const Group&) const = default;
};

struct Threadblock {
  std::uint32_t first_step = 0;  // in Program::steps
  std::uint32_t step_count = 0;
  bool operator==(const Threadblock&) const = default;
};
using ir::RankProgram;  // its threadblocks are those below

// Layout: threadblocks in the order of their ranks, steps in the order of their threadblocks, operands and objects in
// the order of their steps, without gaps or sharing.
struct Program {
  std::string name;
  model::Collective collective;
  // Scratch alternates between this many copies from call to call (1 or 2), so that a call does not meet the one
  // before.
  std::uint32_t halves = 1;
  // Whether other programs use the same scratch between two calls of this one.
  bool shared_scratch = false;
  std::vector<RankProgram> ranks;
  std::vector<Threadblock> threadblocks;
  std::vector<Step> steps;
  std::vector<Operand> operands;
  std::vector<std::uint32_t> objects;  // numbers of channels, semaphores or barriers
  std::vector<Channel> channels;
  std::vector<Semaphore> semaphores;
  std::vector<Barrier> barriers;
  std::vector<Group> groups;
  Source source;  // line_of: per step

  std::span<const Threadblock> tbs(std::uint32_t rank) const {
    return std::span(threadblocks).subspan(ranks[rank].first_tb, ranks[rank].tb_count);
  }
  std::span<const Step> steps_of(const Threadblock& tb) const {
    return std::span(steps).subspan(tb.first_step, tb.step_count);
  }
  // Calls visit(rank, threadblock, step's number in it, step's number in `steps`) for each step.
  template <class Visit>
  void each_step(Visit visit) const {
    for (std::uint32_t r = 0; r < ranks.size(); ++r) {
      for (std::uint32_t t = 0; t < ranks[r].tb_count; ++t) {
        const Threadblock& tb = threadblocks[ranks[r].first_tb + t];
        for (std::uint32_t s = 0; s < tb.step_count; ++s) visit(r, t, s, tb.first_step + s);
      }
    }
  }
  std::span<const Operand> sources(const Step& s) const { return std::span(operands).subspan(s.first, s.sources); }
  std::span<const Operand> targets(const Step& s) const {
    return std::span(operands).subspan(s.first + s.sources, s.targets);
  }
  std::span<const std::uint32_t> objects_of(const Step& s) const {
    return s.op == Op::move ? std::span<const std::uint32_t>() : std::span(objects).subspan(s.first, s.sources);
  }
  // Whether both do the same; where they were written does not matter.
  bool operator==(const Program& o) const {
    return name == o.name && collective == o.collective && halves == o.halves && shared_scratch == o.shared_scratch &&
           ranks == o.ranks && threadblocks == o.threadblocks && steps == o.steps && operands == o.operands &&
           objects == o.objects && channels == o.channels && semaphores == o.semaphores && barriers == o.barriers &&
           groups == o.groups;
  }
};

// Checks each step by itself and every number. After it, every index in the program is safe to use. False if the
// program is too malformed for other checks.
bool check_structure(const Program& program, Findings& findings);

// The text form. parse_text(to_text(p)) == p.
//
//   direct "one shot" version 1
//   collective allreduce ranks 2 chunks 2 in place
//   halves 2 shared scratch
//   channel 0 from 0 to 1
//   channel 1 from 1 to 0 port
//   semaphore 0 rank 0 initial 1
//   barrier 0 rank 1 threadblocks 2
//   group 0 ranks 0 1
//
//   rank 0 scratch 4
//     tb 0
//       0 signal 0 relaxed
//       1 wait 1 relaxed
//       2 sync
//       3 move in[0] + 1:in[0] -> out[0] 1:out[0] x2
//       4 move in[0] -> 1:pkt sc[2]
//       5 move g0:in[0] -> g0:in[0]
//       6 move in[0] -> 1:out[0] through 1
//       7 release 0
//
// An operand is [RANK:|gGROUP:][pkt ]BUFFER[CHUNK]; without a rank it is the rank's own. A move waits for packets among
// its sources, and without targets does no more. `through 1`: an asynchronous move of port channel 1, which waits for
// nothing.
std::string to_text(const Program& program);
// One step as it stands in the text form.
std::string to_text(const Program& program, std::uint32_t rank, const Step& step);
// Errors name the line of the text. `origin` is the file name used in them.
Result<Program> parse_text(std::string_view text, const std::string& origin = "<text>");

}  // namespace gc3::ir::direct
