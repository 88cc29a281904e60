// Exact happens-before between chosen pairs of steps, over all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gc3/verify/connections.h"
#include "gc3/verify/index.h"
#include "gc3/verify/schedule.h"

namespace gc3::verify {

class Reachability {
 public:
  Reachability(const ProgramIndex& index, const Connections& connections, const Schedule& schedule);

  // Position of a step in the schedule.
  std::uint32_t position(Step s) const { return position_[instruction_id(s)]; }

  struct Pair {
    std::uint32_t earlier;  // positions
    std::uint32_t later;
  };
  // Indices of the pairs (sorted by `earlier`) that nothing orders; may stop once `limit` are found.
  std::vector<std::size_t> unordered(std::span<const Pair> pairs, std::size_t limit) const;

 private:
  std::uint32_t instruction_id(Step s) const { return index_.program().threadblocks[s.tb].first_instruction + s.step; }

  const ProgramIndex& index_;
  std::vector<std::uint32_t> position_;      // per instruction
  std::vector<std::size_t> first_;           // per position: its direct predecessors are
  std::vector<std::uint32_t> predecessors_;  // predecessors_[first_[p] .. first_[p + 1]), as positions
};

}  // namespace gc3::verify
