// The resources of a machine, each of which serves one request after the other, in their order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "gc3/sim/outcome.h"
#include "gc3/sim/work.h"

namespace gc3::sim {

class Links {
 public:
  // `free` has the time from which each resource is free; `use` counts what is done. Both live longer.
  Links(const MachineData& machine, std::span<Time> free, std::vector<ResourceUse>& use) : free_(free), use_(use) {
    for (const Resource& r : machine.resources) rates_.push_back({per_byte(r.bytes_per_s), picoseconds(r.message_s)});
  }

  // `through`: when all that was asked for so far is through, and `bottleneck` what was the last to be.
  void use(std::uint32_t r, Time start, std::uint64_t bytes, Time& through, std::uint32_t& bottleneck) {
    const Time takes = rates_[r].message + rates_[r].rate.of(bytes);
    Time& free = free_[r];
    free = std::max(free, start) + takes;
    use_[r].busy += takes;
    use_[r].bytes += bytes;
    if (free > through) {
      through = free;
      bottleneck = r;
    }
  }
  Time message(std::uint32_t r) const { return rates_[r].message; }

 private:
  struct Rate {
    PerByte rate;
    Time message = 0;
  };

  std::span<Time> free_;
  std::vector<ResourceUse>& use_;
  std::vector<Rate> rates_;
};

}  // namespace gc3::sim
