#include "gc3/verify/races.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/base/interrupt.h"
#include "gc3/verify/clocks.h"
#include "gc3/verify/reachability.h"

namespace gc3::verify {
namespace {

// Two conflicting accesses that the rank's own program order and dependencies do not order.
struct Suspect {
  Step earlier;  // in the schedule
  Step later;
  std::uint32_t slot;
  bool earlier_writes;
  bool later_writes;
};

// Finds the suspects of a rank. The schedule extends happens-before, so comparing neighbours in the schedule is enough.
// If each write is ordered with the reads after it up to the next write, each of these reads with that write, and
// writes without reads in between with each other, then all conflicting accesses are ordered, by transitivity.
class RankScan {
 public:
  RankScan(const ProgramIndex& index, std::vector<Suspect>& suspects)
      : index_(index), suspects_(suspects), clocks_(index) {}

  bool full() const { return clocks_.full(); }
  void begin(std::uint32_t rank) {
    rank_ = rank;
    clocks_.reset(rank);
    slots_.assign(index_.slots(rank).begin[3], {});
    readers_.clear();
  }

  void enter(Step step) {
    clocks_.enter(step);
    const ir::Instruction& i = index_.instruction(step);
    const ir::OpcodeInfo& op = ir::info(i.opcode);
    const ir::Compute& compute = index_.program().compute;
    for (const ir::Operand& o : compute.reads(i)) read(step, index_.slot(rank_, o.buffer, o.chunk));
    for (const ir::Operand& o : compute.writes(i)) write(step, index_.slot(rank_, o.buffer, o.chunk));
    const std::uint32_t src = index_.slot(rank_, i.src_buffer, i.src_chunk);
    const std::uint32_t dst = index_.slot(rank_, i.dst_buffer, i.dst_chunk);
    if (op.reads_local) {
      for (std::uint32_t k = 0; k < i.count; ++k) read(step, src + k);
    }
    if (op.updates_dst()) {
      for (std::uint32_t k = 0; k < i.count; ++k) read(step, dst + k);
    }
    if (op.writes_local) {
      for (std::uint32_t k = 0; k < i.count; ++k) write(step, dst + k);
    }
  }

 private:
  struct Slot {
    Step writer;                        // the last one; tb kNone: only the initial value
    std::uint32_t last_reader = kNone;  // since then: a list in readers_
  };
  struct Reader {
    Step step;
    std::uint32_t next;
  };

  void read(Step step, std::uint32_t at) {
    Slot& slot = slots_[at];
    if (slot.writer.tb != kNone) check(slot.writer, step, at, true, false);
    readers_.push_back({step, slot.last_reader});
    slot.last_reader = static_cast<std::uint32_t>(readers_.size() - 1);
  }

  void write(Step step, std::uint32_t at) {
    Slot& slot = slots_[at];
    if (slot.last_reader == kNone && slot.writer.tb != kNone) check(slot.writer, step, at, true, true);
    for (std::uint32_t r = slot.last_reader; r != kNone; r = readers_[r].next) {
      if (readers_[r].step != step) check(readers_[r].step, step, at, false, true);
    }
    slot = {step, kNone};
  }

  void check(Step earlier, Step later, std::uint32_t slot, bool earlier_writes, bool later_writes) {
    if (clocks_.ordered(earlier, later)) return;
    suspects_.push_back({earlier, later, slot, earlier_writes, later_writes});
  }

  const ProgramIndex& index_;
  std::vector<Suspect>& suspects_;
  Clocks clocks_;
  std::uint32_t rank_ = 0;
  std::vector<Slot> slots_;
  std::vector<Reader> readers_;
};

std::vector<Suspect> find_suspects(const ProgramIndex& index, const Schedule& schedule, Findings& findings) {
  // The runs of each rank, in schedule order.
  const std::size_t ranks = index.program().ranks.size();
  std::vector<std::size_t> begin(ranks + 1);
  for (const Run& run : schedule) ++begin[index.rank_of(run.tb) + 1];
  for (std::size_t r = 0; r < ranks; ++r) begin[r + 1] += begin[r];
  std::vector<Run> by_rank(schedule.size());
  std::vector<std::size_t> next(begin.begin(), begin.end() - 1);
  for (const Run& run : schedule) by_rank[next[index.rank_of(run.tb)]++] = run;

  std::vector<Suspect> suspects;
  RankScan scan(index, suspects);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    scan.begin(r);
    Breath breathe;
    for (std::size_t k = begin[r]; k < begin[r + 1]; ++k) {
      breathe();
      for (std::uint32_t s = by_rank[k].first; s < by_rank[k].end; ++s) scan.enter({by_rank[k].tb, s});
    }
    if (!scan.full()) continue;
    findings.add({ErrorCode::ProgramTooLarge,
                  "rank " + std::to_string(r) + " has too many threadblocks that wait for each other at a time"});
    return {};
  }
  return suspects;
}

// The position of `slot` within the operand of `step`. It is unique: the operands of a step are equal or disjoint.
std::uint32_t place_in_operand(const ProgramIndex& index, Step step, std::uint32_t slot) {
  const ir::Instruction& i = index.instruction(step);
  const std::uint32_t rank = index.rank_of(step.tb);
  // An operation may access any of its operands at any time: in no place that a message would have.
  if (i.opcode == ir::Opcode::apply) return kNone;
  const std::uint32_t src = index.slot(rank, i.src_buffer, i.src_chunk);
  const bool is_src = ir::info(i.opcode).reads_local && src <= slot && slot - src < i.count;
  return slot - (is_src ? src : index.slot(rank, i.dst_buffer, i.dst_chunk));
}

Diagnostic describe(const ProgramIndex& index, const Suspect& race) {
  const std::uint32_t rank = index.rank_of(race.later.tb);
  const auto does = [](bool writes) { return writes ? " writes it" : " reads it"; };
  return {ErrorCode::DataRace, "rank " + std::to_string(rank) + " " + place_name(index.place(rank, race.slot)) + ": " +
                                   index.describe(race.earlier) + does(race.earlier_writes) + " and " +
                                   index.describe(race.later) + does(race.later_writes) +
                                   ", and no order between them is defined"};
}

}  // namespace

bool ordered_within_ranks(const ProgramIndex& index, const Schedule& schedule, Findings& findings) {
  const std::vector<Suspect> suspects = find_suspects(index, schedule, findings);
  if (!suspects.empty()) findings.add(describe(index, suspects.front()));
  return findings.empty();
}

void check_races(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                 Findings& findings) {
  std::vector<Suspect> suspects = find_suspects(index, schedule, findings);
  if (suspects.empty()) return;
  // Messages through other ranks may still order them.
  const Reachability order(index, connections, schedule);
  const auto aligned = [&](const Suspect& s) {
    return place_in_operand(index, s.earlier, s.slot) == place_in_operand(index, s.later, s.slot);
  };
  std::ranges::sort(suspects, {}, [&](const Suspect& s) {
    return std::tuple(order.position(s.earlier), order.position(s.later), aligned(s), s.slot);
  });
  const auto same_steps = [](const Suspect& a, const Suspect& b) {
    return a.earlier == b.earlier && a.later == b.later;
  };
  const auto repeats = std::ranges::unique(
      suspects, [&](const Suspect& a, const Suspect& b) { return same_steps(a, b) && aligned(a) == aligned(b); });
  suspects.erase(repeats.begin(), repeats.end());
  std::vector<Reachability::Pair> pairs;
  pairs.reserve(suspects.size());
  for (const Suspect& s : suspects) pairs.push_back({s.earlier, s.later, aligned(s)});
  const Suspect* reported = nullptr;
  const std::size_t limit = 2 * std::min(findings.room(), pairs.size());  // two steps may conflict at two slots
  for (const std::size_t k : order.unordered(pairs, limit)) {
    if (reported == nullptr || !same_steps(*reported, suspects[k])) findings.add(describe(index, suspects[k]));
    reported = &suspects[k];
  }
}

}  // namespace gc3::verify
