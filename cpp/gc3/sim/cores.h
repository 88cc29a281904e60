// Processors that ranks share, as the ranks of the CPU engines do. A rank keeps its processor while it has work. Then
// the processor switches to the next of its ranks, whether or not that has work; a switch takes time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "gc3/sim/machine.h"

namespace gc3::sim {

class Cores {
 public:
  // None, unless the machine has processors.
  Cores(const MachineData& machine, std::size_t ranks)
      : switch_(shortest(picoseconds(machine.core_switch_s))), due_(machine.cores == 0 ? 0 : ranks) {
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(machine.cores, ranks));
    cores_.resize(count);
    for (std::uint32_t r = 0; r < due_.size(); ++r) {
      // The last processors have one more rank if the ranks cannot be divided evenly, as the workers of the engine do.
      const auto in_a_row = static_cast<std::uint32_t>((std::size_t{count} * (r + std::size_t{1}) - 1) / ranks);
      core_of_.push_back(machine.cores_dealt ? r % count : in_a_row);
      Core& core = cores_[core_of_.back()];
      if (core.rank == kNone) {
        core.rank = r;
      } else {
        core.others.push_back(r);
      }
    }
  }

  std::uint32_t count() const { return static_cast<std::uint32_t>(cores_.size()); }
  Time switch_time() const { return switch_; }
  // Threadblocks that wait for a processor.
  std::uint32_t waiting() const { return waiting_; }
  // Processors that execute a rank or switch to another; the others are idle.
  std::uint32_t moving() const { return moving_; }
  bool rests(std::uint32_t core) const { return !cores_[core].moves; }

  // A threadblock of `rank` is ready.
  void add(std::uint32_t rank, std::uint32_t tb) {
    due_[rank].push_back(tb);
    ++waiting_;
  }
  // The threadblock of the processor's current rank that has been ready for longest; kNone: there is none.
  std::uint32_t take(std::uint32_t core) {
    std::deque<std::uint32_t>& due = due_[cores_[core].rank];
    if (due.empty()) return kNone;
    const std::uint32_t tb = due.front();
    due.pop_front();
    --waiting_;
    return tb;
  }
  // Gives the processor to its next rank; if a switch takes no time, to the next rank that has work. False: there is
  // none.
  bool yield(std::uint32_t core) {
    std::deque<std::uint32_t>& others = cores_[core].others;
    const auto next =
        switch_ != 0 ? others.begin() : std::ranges::find_if(others, [&](std::uint32_t r) { return !due_[r].empty(); });
    if (next == others.end()) return false;
    const std::uint32_t rank = *next;
    others.erase(next);
    others.push_back(cores_[core].rank);
    cores_[core].rank = rank;
    return true;
  }
  void set_moving(std::uint32_t core, bool moves) {
    moving_ += std::uint32_t{moves};
    moving_ -= std::uint32_t{cores_[core].moves};
    cores_[core].moves = moves;
  }
  std::uint32_t core_of(std::uint32_t rank) const { return core_of_[rank]; }
  // Whether two ranks share a processor.
  bool share(std::uint32_t a, std::uint32_t b) const { return count() != 0 && core_of_[a] == core_of_[b]; }

 private:
  // A switch below 10 ns counts as 0: idle processors would otherwise switch too often to be simulated.
  static Time shortest(Time time) { return time < 10'000 ? 0 : time; }

  struct Core {
    std::uint32_t rank = kNone;        // the rank it executes
    std::deque<std::uint32_t> others;  // the next one first
    bool moves = false;
  };

  Time switch_;
  std::vector<Core> cores_;
  std::vector<std::uint32_t> core_of_;          // of each rank
  std::vector<std::deque<std::uint32_t>> due_;  // of each rank
  std::uint32_t waiting_ = 0;
  std::uint32_t moving_ = 0;
};

}  // namespace gc3::sim
