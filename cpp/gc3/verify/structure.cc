#include "gc3/verify/structure.h"

#include <cstdint>
#include <string>
#include <utility>

#include "gc3/base/interrupt.h"
#include "gc3/verify/index.h"

namespace gc3::verify {
namespace {

using ir::Instruction;
using model::Buffer;

// Bounds on what the checks allocate and walk, far above any real program: a small file cannot ask for much memory.
constexpr std::uint64_t kMaxSlots = std::uint64_t{1} << 27U;
constexpr std::uint64_t kMaxChunkAccesses = std::uint64_t{1} << 30U;
// Each dependency may leave a clock of all threadblocks of its rank behind: see clocks.h.
constexpr std::uint64_t kMaxClocksOfRank = std::uint64_t{1} << 27U;
constexpr std::uint64_t kMaxClocks = std::uint64_t{1} << 33U;

std::string plural(std::uint64_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

class Structure {
 public:
  Structure(const ir::Program& program, const Options& options, Findings& findings)
      : program_(program), options_(options), findings_(findings) {}

  bool run() {
    if (!check_layout()) return false;
    for (std::uint32_t r = 0; r < program_.ranks.size() && !findings_.full(); ++r) check_rank(r);
    return sound_ && check_extent();
  }

 private:
  void report(ErrorCode code, std::string message) { findings_.add({code, std::move(message)}); }
  void malformed(std::string message) {
    sound_ = false;
    report(ErrorCode::BadStructure, std::move(message));
  }

  // Ranks, threadblocks and steps each lie one after the other, so that every record belongs to exactly one owner.
  bool check_layout() {
    const std::uint32_t ranks = program_.collective.ranks();
    if (program_.ranks.size() != ranks) {
      malformed("the collective has " + plural(ranks, "rank") + ", the program " +
                std::to_string(program_.ranks.size()));
      return false;
    }
    if (program_.slots == 0 && options_.slots == 0) {
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
      const ir::RankProgram& rank = program_.ranks[r];
      if (rank.first_tb != next_tb || rank.tb_count > program_.threadblocks.size() - next_tb) {
        malformed("the threadblocks of rank " + std::to_string(r) + " do not follow those of the rank before it");
        return false;
      }
      next_tb += rank.tb_count;
      for (std::uint32_t t = 0; t < rank.tb_count; ++t) {
        const ir::Threadblock& tb = program_.threadblocks[rank.first_tb + t];
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
    if (next_tb != program_.threadblocks.size() || next_instruction != program_.instructions.size()) {
      malformed("there are threadblocks or steps that belong to no rank");
      return false;
    }
    // Steps that share dependency records could make a small file stand for a quadratic number of dependencies.
    if (dependencies > program_.dependencies.size()) {
      malformed("steps share records of the table of dependencies");
      return false;
    }
    return true;
  }

  bool check_extent() {
    std::uint64_t slots = 0;
    for (std::uint32_t r = 0; r < program_.ranks.size(); ++r) {
      for (const std::uint64_t size : buffer_sizes(program_, r)) slots += size;
    }
    std::uint64_t accesses = 0;
    for (const Instruction& i : program_.instructions) accesses += i.count;
    if (slots <= kMaxSlots && accesses <= kMaxChunkAccesses) return check_clocks();
    report(ErrorCode::ProgramTooLarge, plural(slots, "chunk") + " in all buffers, " + plural(accesses, "chunk") +
                                           " moved; at most " + std::to_string(kMaxSlots) + " and " +
                                           std::to_string(kMaxChunkAccesses) + " can be verified");
    return false;
  }

  bool check_clocks() {
    std::uint64_t clocks = 0;
    for (std::uint32_t r = 0; r < program_.ranks.size(); ++r) {
      std::uint64_t waits = 0;
      for (const ir::Threadblock& tb : program_.tbs(r)) {
        for (const Instruction& i : program_.steps(tb)) waits += i.dep_count;
      }
      const std::uint64_t tbs = program_.ranks[r].tb_count;
      clocks += waits * tbs;
      if (waits * tbs <= kMaxClocksOfRank && clocks <= kMaxClocks) continue;
      report(ErrorCode::ProgramTooLarge,
             "rank " + std::to_string(r) + " has " + plural(tbs, "threadblock") + " and " + std::to_string(waits) +
                 " dependencies; what can be verified is a product of at most " + std::to_string(kMaxClocksOfRank) +
                 ", and " + std::to_string(kMaxClocks) + " over all ranks");
      return false;
    }
    return true;
  }

  void check_rank(std::uint32_t r) {
    const ir::RankProgram& rank = program_.ranks[r];
    if (options_.max_threadblocks != 0 && rank.tb_count > options_.max_threadblocks) {
      report(ErrorCode::LimitExceeded, "rank " + std::to_string(r) + " has " + plural(rank.tb_count, "threadblock") +
                                           "; the limit is " + std::to_string(options_.max_threadblocks));
    }
    sizes_ = buffer_sizes(program_, r);
    input_writable_ = program_.collective.writable(r, {Buffer::input, 0});
    for (std::uint32_t t = 0; t < rank.tb_count && !findings_.full(); ++t) {
      check_threadblock(r, t, program_.threadblocks[rank.first_tb + t]);
    }
  }

  void check_threadblock(std::uint32_t r, std::uint32_t t, const ir::Threadblock& tb) {
    const auto peer_ok = [&](std::uint32_t peer, const char* role) {
      if (peer == ir::kNoRank || (peer < program_.ranks.size() && peer != r)) return;
      malformed("rank " + std::to_string(r) + " threadblock " + std::to_string(t) + " has rank " +
                std::to_string(peer) + " as its " + role + " peer" + (peer == r ? ", which is itself" : ""));
    };
    peer_ok(tb.send_peer, "send");
    peer_ok(tb.recv_peer, "receive");
    const bool connected = tb.send_peer != ir::kNoRank || tb.recv_peer != ir::kNoRank;
    if (connected && options_.max_channels != 0 && tb.channel >= options_.max_channels) {
      report(ErrorCode::LimitExceeded, "rank " + std::to_string(r) + " threadblock " + std::to_string(t) +
                                           " uses channel " + std::to_string(tb.channel) + "; the limit is " +
                                           plural(options_.max_channels, "channel") + ", counted from 0");
    }
    Breath breathe;
    for (std::uint32_t s = 0; s < tb.instruction_count && !findings_.full(); ++s) {
      breathe();
      check_instruction({r, t, s}, tb, program_.instructions[tb.first_instruction + s]);
    }
  }

  struct Where {
    std::uint32_t rank, tb, step;
  };

  // The text form of a malformed instruction may not exist, so these messages name the opcode only.
  static std::string name(const Where& w, const Instruction& i) {
    return step_name(w.rank, w.tb, w.step) + " (" + std::string(ir::info(i.opcode).name) + ")";
  }

  void check_instruction(const Where& w, const ir::Threadblock& tb, const Instruction& i) {
    if (static_cast<std::size_t>(i.opcode) >= ir::kOpcodeCount) {
      malformed(step_name(w.rank, w.tb, w.step) + " has no known opcode");
      return;
    }
    if (i.src_buffer > Buffer::scratch || i.dst_buffer > Buffer::scratch) {
      malformed(name(w, i) + " names a buffer that does not exist");
      return;
    }
    const ir::OpcodeInfo& op = ir::info(i.opcode);
    if (op.receives && tb.recv_peer == ir::kNoRank) {
      malformed(name(w, i) + " receives, but its threadblock has no receive peer");
    }
    if (op.sends && tb.send_peer == ir::kNoRank) {
      malformed(name(w, i) + " sends, but its threadblock has no send peer");
    }
    if (op.moves() != (i.count > 0)) {
      malformed(name(w, i) +
                (op.moves() ? " moves no chunk: its count is 0" : " moves nothing, so its count must be 0"));
    }
    if (op.reads_local) check_range(w, i, i.src_buffer, i.src_chunk);
    if (op.writes_local) {
      check_range(w, i, i.dst_buffer, i.dst_chunk);
      if (i.dst_buffer == Buffer::input && !input_writable_) {
        report(ErrorCode::InputOverwritten, name(w, i) + " writes " + range_name(i.dst_buffer, i.dst_chunk, i.count));
      }
    }
    if (op.reads_local && op.writes_local && i.src_buffer == i.dst_buffer && i.src_chunk != i.dst_chunk) {
      const std::uint32_t apart = i.src_chunk < i.dst_chunk ? i.dst_chunk - i.src_chunk : i.src_chunk - i.dst_chunk;
      // Chunks of one instruction are moved in no particular order.
      if (apart < i.count) {
        malformed(name(w, i) + " reads " + range_name(i.src_buffer, i.src_chunk, i.count) + " and writes " +
                  range_name(i.dst_buffer, i.dst_chunk, i.count) + ", which overlap");
      }
    }
    for (const ir::Dependency& d : program_.deps(i)) check_dependency(w, i, d);
  }

  static std::string range_name(Buffer buffer, std::uint32_t chunk, std::uint32_t count) {
    const std::uint64_t last = std::uint64_t{chunk} + count - 1;
    return std::string(model::name_of(buffer)) + "[" + std::to_string(chunk) +
           (count > 1 ? ".." + std::to_string(last) : "") + "]";
  }

  void check_range(const Where& w, const Instruction& i, Buffer buffer, std::uint32_t chunk) {
    const std::uint64_t size = sizes_[static_cast<std::size_t>(buffer)];
    if (i.count == 0 || (i.count <= size && chunk <= size - i.count)) return;
    const model::Place place = program_.collective.canonical(w.rank, {buffer, chunk});
    if (buffer != Buffer::scratch && place.buffer != buffer) {
      malformed(name(w, i) + " names " + range_name(buffer, chunk, i.count) + ", which in place is part of " +
                std::string(model::name_of(place.buffer)) + "; programs name only that");
      return;
    }
    malformed(name(w, i) + " uses " + range_name(buffer, chunk, i.count) + ", but " +
              std::string(model::name_of(buffer)) + " of rank " + std::to_string(w.rank) + " has " +
              plural(size, "chunk"));
  }

  void check_dependency(const Where& w, const Instruction& i, ir::Dependency d) {
    const auto waits_for = [&] {
      return name(w, i) + " waits for threadblock " + std::to_string(d.tb) + " step " + std::to_string(d.step);
    };
    const ir::RankProgram& rank = program_.ranks[w.rank];
    if (d.tb >= rank.tb_count || d.step >= program_.threadblocks[rank.first_tb + d.tb].instruction_count) {
      malformed(waits_for() + ", which does not exist");
      return;
    }
    if (d.tb == w.tb && d.step >= w.step) {
      malformed(waits_for() + ", which is " + (d.step == w.step ? "itself" : "a later step of its own threadblock"));
      return;
    }
    const ir::Threadblock& other = program_.threadblocks[rank.first_tb + d.tb];
    if (program_.instructions[other.first_instruction + d.step].has_dependents == 0) {
      malformed(waits_for() + ", which is not marked as having dependents and so never says that it is done");
    }
  }

  const ir::Program& program_;
  const Options& options_;
  Findings& findings_;
  bool sound_ = true;                     // no finding so far that would mislead the other checks
  std::array<std::uint64_t, 3> sizes_{};  // of the rank being checked
  bool input_writable_ = false;           // likewise
};

}  // namespace

bool check_structure(const ir::Program& program, const Options& options, Findings& findings) {
  return Structure(program, options, findings).run();
}

}  // namespace gc3::verify
