// Processors that ranks share, as the ranks of the CPU engines do: a rank keeps its processor while it has something to
// do. A processor whose rank has nothing yields: that rank goes to the end of the queue of those without a processor,
// and the first of them has its turn, which takes a switch, whether or not it has something to do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "gc3/sim/machine.h"

namespace gc3::sim {

class Cores {
 public:
  // None, unless the machine has some.
  Cores(const MachineData& machine, std::size_t ranks)
      : switch_(shortest(picoseconds(machine.core_switch_s))), due_(machine.cores == 0 ? 0 : ranks) {
    const std::size_t count = std::min<std::size_t>(machine.cores, ranks);
    for (std::uint32_t r = 0; r < due_.size(); ++r) {
      if (cores_.size() < count && cores_.size() * ranks / count == r) {  // evenly spread ranks begin
        cores_.push_back({r});
      } else {
        queue_.push_back(r);
      }
    }
  }

  std::uint32_t count() const { return static_cast<std::uint32_t>(cores_.size()); }
  Time switch_time() const { return switch_; }
  // Threadblocks that wait for a processor.
  std::uint32_t waiting() const { return waiting_; }
  // Processors that are at work, or on their way to another rank; the others rest.
  std::uint32_t moving() const { return moving_; }
  bool rests(std::uint32_t core) const { return !cores_[core].moves; }

  // A threadblock of `rank` has something to do.
  void add(std::uint32_t rank, std::uint32_t tb) {
    due_[rank].push_back(tb);
    ++waiting_;
  }
  // A threadblock of the processor's rank that has something to do, the first to have it; kNone: there is none.
  std::uint32_t take(std::uint32_t core) {
    std::deque<std::uint32_t>& due = due_[cores_[core].rank];
    if (due.empty()) return kNone;
    const std::uint32_t tb = due.front();
    due.pop_front();
    --waiting_;
    return tb;
  }
  // Gives the processor to the next rank; if that takes no time, to the next that has something to do. False: there is
  // none.
  bool yield(std::uint32_t core) {
    const auto next = switch_ != 0 ? queue_.begin()
                                   : std::ranges::find_if(queue_, [&](std::uint32_t r) { return !due_[r].empty(); });
    if (next == queue_.end()) return false;
    const std::uint32_t rank = *next;
    queue_.erase(next);
    queue_.push_back(cores_[core].rank);
    cores_[core].rank = rank;
    return true;
  }
  void set_moving(std::uint32_t core, bool moves) {
    if (cores_[core].moves != moves) moving_ += moves ? 1 : -1;
    cores_[core].moves = moves;
  }
  // The one that has `rank`, which is not in the queue.
  std::uint32_t core_of(std::uint32_t rank) const {
    std::uint32_t core = 0;
    while (cores_[core].rank != rank) ++core;
    return core;
  }

 private:
  // Looking around at every picosecond would take for ever.
  static Time shortest(Time time) { return time < 10'000 ? 0 : time; }

  struct Core {
    std::uint32_t rank = 0;
    bool moves = false;
  };

  Time switch_;
  std::vector<Core> cores_;
  std::deque<std::uint32_t> queue_;             // ranks without a processor
  std::vector<std::deque<std::uint32_t>> due_;  // of each rank
  std::uint32_t waiting_ = 0;
  std::uint32_t moving_ = 0;
};

}  // namespace gc3::sim
