#include "gc3/verify/reachability.h"

#include <algorithm>
#include <array>
#include <utility>

#include "gc3/base/interrupt.h"

namespace gc3::verify {
namespace {

// For each threadblock in a set, the number of its steps that precede a given step. The steps of a threadblock are
// ordered among themselves, so this number describes all of them. One pass over the schedule handles as many
// threadblocks as fit into a cache line.
constexpr std::size_t kLanes = 16;
struct Known {
  std::array<std::uint32_t, kLanes> steps{};
  void merge(const Known& o) {
    for (std::size_t k = 0; k < kLanes; ++k) steps[k] = std::max(steps[k], o.steps[k]);
  }
};

// Per instruction, the instruction that sent the message it receives (kNone: it receives nothing).
std::vector<std::uint32_t> senders_of(const ProgramIndex& index, const Connections& connections) {
  const ir::Program& program = index.program();
  std::vector<std::uint32_t> sender(program.instructions.size(), kNone);
  for (const Connection& c : connections.all) {
    if (c.messages == 0) continue;
    std::uint32_t s = program.threadblocks[c.send_tb].first_instruction;
    std::uint32_t r = program.threadblocks[c.recv_tb].first_instruction;
    for (std::uint32_t k = 0; k < c.messages; ++k, ++s, ++r) {
      while (!ir::info(program.instructions[s].opcode).sends) ++s;
      while (!ir::info(program.instructions[r].opcode).receives) ++r;
      sender[r] = s;
    }
  }
  return sender;
}

}  // namespace

Reachability::Reachability(const ProgramIndex& index, const Connections& connections, const Schedule& schedule)
    : index_(index), position_(index.program().instructions.size()) {
  const ir::Program& program = index.program();
  const std::vector<std::uint32_t> sender = senders_of(index, connections);
  std::uint32_t next = 0;
  step_at_.reserve(position_.size());
  sender_.reserve(position_.size());
  first_.reserve(position_.size() + 1);
  Breath breathe;
  for (const Run& run : schedule) {
    breathe();
    for (std::uint32_t s = run.first; s < run.end; ++s, ++next) {
      const Step step{run.tb, s};
      const std::uint32_t id = instruction_id(step);
      position_[id] = next;
      step_at_.push_back(step);
      first_.push_back(predecessors_.size());
      if (s > 0) predecessors_.push_back(position_[id - 1]);
      sender_.push_back(sender[id] == kNone ? kNone : position_[sender[id]]);
      for (const ir::Dependency& d : program.deps(program.instructions[id])) {
        predecessors_.push_back(position(index.awaited(index.rank_of(run.tb), d)));
      }
    }
  }
  first_.push_back(predecessors_.size());
}

std::vector<Reachability::Group> Reachability::groups_of(std::span<const Pair> pairs) const {
  std::vector<Group> groups;
  std::vector<std::uint32_t> group_of(index_.program().threadblocks.size(), kNone);
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    std::uint32_t& group = group_of[pairs[k].earlier.tb];
    const std::uint32_t first = position(pairs[k].earlier);
    const std::uint32_t last = position(pairs[k].later);
    if (group == kNone) {
      group = static_cast<std::uint32_t>(groups.size());
      groups.push_back({pairs[k].earlier.tb, first, last, {}});
    }
    Group& g = groups[group];
    g.first = std::min(g.first, first);
    g.last = std::max(g.last, last);
    g.members.push_back(k);
  }
  // Pairs that are close in the schedule share a pass.
  std::ranges::stable_sort(groups, {}, &Group::first);
  return groups;
}

void Reachability::judge(std::span<const Group> groups, std::span<const Pair> pairs,
                         std::vector<std::size_t>& found) const {
  const std::uint32_t begin = std::ranges::min(groups, {}, &Group::first).first;
  const std::uint32_t end = std::ranges::max(groups, {}, &Group::last).last + 1;
  struct Ends {
    Known begun;     // finished before the step touches its first chunk
    Known finished;  // finished when the step is
  };
  std::vector<Ends> known(end - begin);
  Breath breathe;
  for (std::uint32_t p = begin; p < end; ++p) {
    breathe();
    Ends& here = known[p - begin];
    for (std::size_t k = first_[p]; k < first_[p + 1]; ++k) {
      if (predecessors_[k] >= begin) here.begun.merge(known[predecessors_[k] - begin].finished);
    }
    const bool receives = sender_[p] != kNone && sender_[p] >= begin;
    if (receives) here.begun.merge(known[sender_[p] - begin].begun);
    here.finished = here.begun;
    if (receives) here.finished.merge(known[sender_[p] - begin].finished);
    for (std::size_t lane = 0; lane < groups.size(); ++lane) {
      if (groups[lane].tb == step_at_[p].tb) here.finished.steps[lane] = step_at_[p].step + 1;
    }
  }
  for (std::size_t lane = 0; lane < groups.size(); ++lane) {
    for (const std::size_t m : groups[lane].members) {
      const Pair& pair = pairs[m];
      const bool ordered = known[position(pair.later) - begin].begun.steps[lane] > pair.earlier.step;
      if (!ordered && !(pair.aligned && chained(pair))) found.push_back(m);
    }
  }
}

// Whether only fused steps forward the message from the earlier step to the later one.
bool Reachability::chained(const Pair& pair) const {
  std::uint32_t p = sender_[position(pair.later)];
  while (p != kNone && p != position(pair.earlier)) p = sender_[p];
  return p != kNone;
}

std::vector<std::size_t> Reachability::unordered(std::span<const Pair> pairs, std::size_t limit) const {
  std::vector<std::size_t> found;
  const std::vector<Group> groups = groups_of(pairs);
  for (std::size_t g = 0; g < groups.size() && found.size() < limit; g += kLanes) {
    judge(std::span(groups).subspan(g, std::min(kLanes, groups.size() - g)), pairs, found);
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace gc3::verify
