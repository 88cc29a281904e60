// Exact order between chosen pairs of steps, over all ranks.
//
// A message may be received while it is still being sent: the line protocols work chunk by chunk, and a fused step
// passes on what it has while the rest is still to come. So the end of a send orders nothing but the end of its
// receive; what was finished when the send began, though, is finished before the receiver touches its first chunk.
// Between the two ends of a chain of messages alone, chunk k is read, passed on and stored before anything else happens
// to chunk k.
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

  // Position of a step in the schedule.
  std::uint32_t position(Step s) const { return position_[instruction_id(s)]; }

  struct Pair {
    Step earlier;
    Step later;    // in the schedule
    bool aligned;  // both access the chunk as the k-th of their operands, for the same k
  };
  // Indices of the pairs that nothing orders, in ascending order; may stop once `limit` are found.
  std::vector<std::size_t> unordered(std::span<const Pair> pairs, std::size_t limit) const;

 private:
  // The pairs whose earlier step is in one threadblock, and the part of the schedule that matters to them.
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
  std::vector<std::uint32_t> position_;      // per instruction
  std::vector<Step> step_at_;                // per position
  std::vector<std::uint32_t> sender_;        // per position: that of the step that sends what it receives, or kNone
  std::vector<std::size_t> first_;           // per position: what it follows in its threadblock or waits for is
  std::vector<std::uint32_t> predecessors_;  // predecessors_[first_[p] .. first_[p + 1]), as positions
};

}  // namespace gc3::verify
