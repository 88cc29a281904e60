// The exact order between chosen pairs of steps, over all ranks.
//
// A message may be received while it is still being sent: LL and LL128 work line by line, and a fused step forwards
// data while the rest is still to come. So the end of a send precedes only the end of its receive. But a step that was
// finished when the send began is finished before the receiver touches its first chunk. Along a chain that consists
// only of messages, chunk k is read, forwarded and stored at the end before any other access to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gc3/verify/program.h"
#include "gc3/verify/schedule.h"

namespace gc3::verify {

class Reachability {
 public:
  Reachability(const ProgramIndex& index, const Connections& connections, const Schedule& schedule);

  // The position of a step in the schedule.
  std::uint32_t position(Step s) const { return position_[instruction_id(s)]; }

  struct Pair {
    Step earlier;
    Step later;    // in the schedule
    bool aligned;  // both access the chunk as the k-th of their operands, for the same k
  };
  // Indices of the unordered pairs, in ascending order; may stop once `limit` are found.
  std::vector<std::size_t> unordered(std::span<const Pair> pairs, std::size_t limit) const;

 private:
  // The pairs whose earlier step is in one threadblock, and the part of the schedule that is relevant for them.
  struct Group {
    std::uint32_t tb;
    std::uint32_t first, last;         // positions
    std::vector<std::size_t> members;  // indices of pairs
  };
  std::vector<Group> groups_of(std::span<const Pair> pairs) const;
  void judge(std::span<const Group> groups, std::span<const Pair> pairs, std::vector<std::size_t>& found) const;
  bool chained(const Pair& pair) const;

  std::uint32_t instruction_id(Step s) const { return index_.program().threadblocks[s.tb].first_instruction + s.step; }

  const ProgramIndex& index_;
  std::vector<std::uint32_t> position_;  // per instruction
  std::vector<Step> step_at_;            // per position
  std::vector<std::uint32_t> sender_;    // per position: that of the step that sends the message it receives, or kNone
  std::vector<std::size_t> first_;       // per position: its predecessor in the threadblock and its dependencies are
  std::vector<std::uint32_t> predecessors_;  // predecessors_[first_[p] .. first_[p + 1]), as positions
};

}  // namespace gc3::verify
