#include "gc3/ir/structure.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/base/interrupt.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/index.h"

namespace gc3::ir {
namespace {

using model::Buffer;

class Structure {
 public:
  // `ranks`: how many ranks the program has steps of.
  Structure(const Program& program, std::uint32_t ranks, std::uint32_t slots, Findings& findings)
      : program_(program), ranks_(ranks), slots_(slots), findings_(findings) {}

  bool run() {
    if (!check_layout()) return false;
    for (std::uint32_t r = 0; r < program_.ranks.size() && !findings_.full(); ++r) check_rank(r);
    return sound_;
  }

 private:
  void report(ErrorId code, std::string message) { findings_.add({code, std::move(message)}); }
  void malformed(std::string message) {
    sound_ = false;
    report(ErrorCode::BadStructure, std::move(message));
  }

  // Ranks, threadblocks and steps are each contiguous, so every record belongs to exactly one owner.
  bool check_layout() {
    const std::uint32_t ranks = ranks_;
    if (program_.ranks.size() != ranks) {
      malformed("the collective has " + plural(ranks, "rank") + ", the program " +
                std::to_string(program_.ranks.size()));
      return false;
    }
    if (program_.slots == 0 && slots_ == 0) {
      malformed("a connection needs at least one FIFO slot, the program states none");
      return false;
    }
    if (program_.instructions.size() >= kNone || program_.threadblocks.size() >= kNone) {
      report(ErrorCode::ProgramTooLarge, "more than 2^32 - 2 instructions or threadblocks");
      return false;
    }
    std::uint64_t next_tb = 0;
    std::uint64_t next_instruction = 0;
    std::uint64_t dependencies = 0;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const RankProgram& rank = program_.ranks[r];
      if (rank.first_tb != next_tb || rank.tb_count > program_.threadblocks.size() - next_tb) {
        malformed("the threadblocks of rank " + std::to_string(r) + " do not follow those of the rank before it");
        return false;
      }
      next_tb += rank.tb_count;
      for (std::uint32_t t = 0; t < rank.tb_count; ++t) {
        const Threadblock& tb = program_.threadblocks[rank.first_tb + t];
        if (tb.first_instruction != next_instruction ||
            tb.instruction_count > program_.instructions.size() - next_instruction) {
          malformed("the steps of rank " + std::to_string(r) + " threadblock " + std::to_string(t) +
                    " do not follow those of the threadblock before it");
          return false;
        }
        next_instruction += tb.instruction_count;
        for (std::uint32_t s = 0; s < tb.instruction_count; ++s) {
          const Instruction& i = program_.instructions[tb.first_instruction + s];
          dependencies += i.dep_count;
          if (i.dep_count > program_.dependencies.size() || i.dep_begin > program_.dependencies.size() - i.dep_count) {
            malformed(step_name(r, t, s) + " has dependencies outside the table of dependencies");
            return false;
          }
        }
      }
    }
    if (!program_.switched.empty() && program_.switched.size() != program_.instructions.size()) {
      malformed("not every instruction has its switch groups");
      return false;
    }
    if (!check_compute()) return false;
    if (next_tb != program_.threadblocks.size() || next_instruction != program_.instructions.size()) {
      malformed("there are threadblocks or steps that belong to no rank");
      return false;
    }
    // Shared dependency records would let a small file describe a quadratic number of dependencies.
    if (dependencies > program_.dependencies.size()) {
      malformed("steps share records of the table of dependencies");
      return false;
    }
    return true;
  }

  // The table of applications, but for the chunks that they name.
  bool check_compute() {
    const Compute& compute = program_.compute;
    const model::CustomCollective* data = program_.collective.custom_data();
    const auto wrong = [&](const std::string& why) {
      malformed("the table of compute operations " + why);
      return false;
    };
    if (!program_.has_tensors()) {
      const auto applies = [](const Instruction& i) { return i.opcode == Opcode::apply; };
      return (compute == Compute() && std::ranges::none_of(program_.instructions, applies)) ||
             wrong("is of a program whose collective has no tensors");
    }
    if (program_.protocol != model::Protocol::Simple) return wrong("is of a program of another protocol than Simple");
    if (compute.lengths.size() < data->tensors.size()) return wrong("does not name the length of each tensor");
    std::size_t next = 0;
    std::size_t operands = 0;
    for (const Instruction& i : program_.instructions) {
      if (i.opcode != Opcode::apply) continue;
      if (i.src_chunk != next++ || next > compute.applications.size()) return wrong("is not in the order of its steps");
      const Application& a = compute.applications[i.src_chunk];
      const std::uint64_t count = std::uint64_t{a.reads} + a.writes;
      if (a.operation >= data->operations.size()) return wrong("names an operation that does not exist");
      if (a.first != operands || count > compute.operands.size() - operands || count != i.count || i.dst_chunk != 0) {
        return wrong("has operands that belong to no step");
      }
      if (a.reads == 0 || a.writes == 0) return wrong("has an operation without operands or without results");
      operands += count;
      for (const Operand& o : compute.operands_of(a)) {
        const bool read = &o < compute.writes(a).data();
        if (o.buffer > Buffer::scratch || (read ? o.length != 0 : o.length >= compute.lengths.size())) {
          return wrong("has an operand without a buffer or a length");
        }
      }
    }
    if (next != compute.applications.size() || operands != compute.operands.size()) {
      return wrong("has more entries than there are steps");
    }
    return true;
  }

  struct Where {
    std::uint32_t rank, tb, step;
  };

  void check_operands(const Where& w, const Instruction& i) {
    const Application& a = program_.compute.applications[i.src_chunk];
    std::set<std::pair<Buffer, std::uint32_t>> written;
    for (const Operand& o : program_.compute.writes(a)) {
      if (!written.emplace(o.buffer, o.chunk).second) {
        malformed(name(w, i) + " writes " + range_name(o.buffer, o.chunk, 1) + " twice");
      }
      if (o.buffer == Buffer::input) {
        report(ErrorCode::InputOverwritten, name(w, i) + " writes " + range_name(o.buffer, o.chunk, 1));
      }
    }
    for (const Operand& o : program_.compute.reads(a)) {
      // Its function may read the operand again after it has written the result.
      if (written.contains({o.buffer, o.chunk})) {
        malformed(name(w, i) + " reads and writes " + range_name(o.buffer, o.chunk, 1));
      }
    }
    for (const Operand& o : program_.compute.operands_of(a)) check_range(w, i, o.buffer, o.chunk, 1);
  }

  void check_rank(std::uint32_t r) {
    const RankProgram& rank = program_.ranks[r];
    sizes_ = buffer_sizes(program_, r);
    input_writable_ = program_.collective.writable(r, {Buffer::input, 0});
    for (std::uint32_t t = 0; t < rank.tb_count && !findings_.full(); ++t) {
      check_threadblock(r, t, program_.threadblocks[rank.first_tb + t]);
    }
  }

  void check_threadblock(std::uint32_t r, std::uint32_t t, const Threadblock& tb) {
    const auto peer_ok = [&](std::uint32_t peer, const char* role) {
      if (peer == kNoRank || (peer < program_.collective.ranks() && peer != r)) return;
      malformed("rank " + std::to_string(r) + " threadblock " + std::to_string(t) + " has rank " +
                std::to_string(peer) + " as its " + role + " peer" + (peer == r ? ", which is itself" : ""));
    };
    peer_ok(tb.send_peer, "send");
    peer_ok(tb.recv_peer, "receive");
    Breath breathe;
    for (std::uint32_t s = 0; s < tb.instruction_count && !findings_.full(); ++s) {
      breathe();
      check_instruction({r, t, s}, tb, program_.instructions[tb.first_instruction + s]);
    }
  }

  // A malformed instruction may have no text form, so these messages name only the opcode.
  static std::string name(const Where& w, const Instruction& i) {
    return step_name(w.rank, w.tb, w.step) + " (" + std::string(info(i.opcode).name) + ")";
  }

  void check_instruction(const Where& w, const Threadblock& tb, const Instruction& i) {
    if (static_cast<std::size_t>(i.opcode) >= kOpcodeCount) {
      malformed(step_name(w.rank, w.tb, w.step) + " has no known opcode");
      return;
    }
    if (i.src_buffer > Buffer::scratch || i.dst_buffer > Buffer::scratch) {
      malformed(name(w, i) + " names a buffer that does not exist");
      return;
    }
    const OpcodeInfo& op = info(i.opcode);
    if (op.receives && tb.recv_peer == kNoRank) {
      malformed(name(w, i) + " receives, but its threadblock has no receive peer");
    }
    if (op.sends && tb.send_peer == kNoRank) {
      malformed(name(w, i) + " sends, but its threadblock has no send peer");
    }
    if (i.opcode == Opcode::apply) {
      check_operands(w, i);
    } else if (op.moves() != (i.count > 0)) {
      malformed(name(w, i) +
                (op.moves() ? " moves no chunk: its count is 0" : " moves nothing, so its count must be 0"));
    }
    if (op.reads_local) check_range(w, i, i.src_buffer, i.src_chunk, i.count);
    if (op.writes_local) {
      check_range(w, i, i.dst_buffer, i.dst_chunk, i.count);
      if (i.dst_buffer == Buffer::input && !input_writable_) {
        report(ErrorCode::InputOverwritten, name(w, i) + " writes " + range_name(i.dst_buffer, i.dst_chunk, i.count));
      }
    }
    if (op.reads_local && op.writes_local && i.src_buffer == i.dst_buffer && i.src_chunk != i.dst_chunk) {
      const std::uint32_t apart = i.src_chunk < i.dst_chunk ? i.dst_chunk - i.src_chunk : i.src_chunk - i.dst_chunk;
      // The chunks of one instruction are moved in no defined order.
      if (apart < i.count) {
        malformed(name(w, i) + " reads " + range_name(i.src_buffer, i.src_chunk, i.count) + " and writes " +
                  range_name(i.dst_buffer, i.dst_chunk, i.count) + ", which overlap");
      }
    }
    if (!program_.switched.empty()) check_groups(w, tb, i);
    for (const Dependency& d : program_.deps(i)) check_dependency(w, i, d);
  }

  void check_groups(const Where& w, const Threadblock& tb, const Instruction& i) {
    const Switched& groups = program_.switched[tb.first_instruction + w.step];
    const std::size_t most = program_.instructions.size();
    if (groups.multicast != kNone && (!info(i.opcode).sends || groups.multicast >= most)) {
      malformed(name(w, i) + " is in multicast " + std::to_string(groups.multicast) +
                (info(i.opcode).sends ? ", a number above that of instructions" : " and sends nothing"));
    }
    const bool adds = info(i.opcode).receives && info(i.opcode).reduces;
    if (groups.reduction != kNone && (!adds || groups.reduction >= most)) {
      malformed(name(w, i) + " is in reduction " + std::to_string(groups.reduction) +
                (adds ? ", a number above that of instructions" : " and reduces nothing that it receives"));
    }
  }

  static std::string range_name(Buffer buffer, std::uint32_t chunk, std::uint32_t count) {
    const std::uint64_t last = std::uint64_t{chunk} + count - 1;
    return std::string(model::name_of(buffer)) + "[" + std::to_string(chunk) +
           (count > 1 ? ".." + std::to_string(last) : "") + "]";
  }

  void check_range(const Where& w, const Instruction& i, Buffer buffer, std::uint32_t chunk, std::uint32_t count) {
    const std::uint64_t size = sizes_[static_cast<std::size_t>(buffer)];
    if (count == 0 || (count <= size && chunk <= size - count)) return;
    const model::Place place = program_.collective.canonical(w.rank, {buffer, chunk});
    if (buffer != Buffer::scratch && place.buffer != buffer) {
      malformed(name(w, i) + " names " + range_name(buffer, chunk, count) + ", which in place is part of " +
                std::string(model::name_of(place.buffer)) + "; programs name only that");
      return;
    }
    malformed(name(w, i) + " uses " + range_name(buffer, chunk, count) + ", but " +
              std::string(model::name_of(buffer)) + " of rank " + std::to_string(w.rank) + " has " +
              plural(size, "chunk"));
  }

  void check_dependency(const Where& w, const Instruction& i, Dependency d) {
    const auto waits_for = [&] {
      return name(w, i) + " waits for threadblock " + std::to_string(d.tb) + " step " + std::to_string(d.step);
    };
    const RankProgram& rank = program_.ranks[w.rank];
    if (d.tb >= rank.tb_count || d.step >= program_.threadblocks[rank.first_tb + d.tb].instruction_count) {
      malformed(waits_for() + ", which does not exist");
      return;
    }
    if (d.tb == w.tb && d.step >= w.step) {
      malformed(waits_for() + ", which is " + (d.step == w.step ? "itself" : "a later step of its own threadblock"));
      return;
    }
    const Threadblock& other = program_.threadblocks[rank.first_tb + d.tb];
    if (program_.instructions[other.first_instruction + d.step].has_dependents == 0) {
      malformed(waits_for() + ", which is not marked as having dependents and so never publishes its completion");
    }
  }

  const Program& program_;
  std::uint32_t ranks_;
  std::uint32_t slots_;
  Findings& findings_;
  bool sound_ = true;                     // no finding so far that would mislead later checks
  std::array<std::uint64_t, 3> sizes_{};  // of the rank being checked
  bool input_writable_ = false;           // likewise
};

}  // namespace

bool check_structure(const Program& program, std::uint32_t slots, Findings& findings) {
  return Structure(program, program.collective.ranks(), slots, findings).run();
}

bool check_structure(const ClassProgram& program, std::uint32_t slots, Findings& findings) {
  return check_action(program, findings) && Structure(program.representative, 1, slots, findings).run();
}

}  // namespace gc3::ir
