// Max-min fair rates by progressive filling.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/base/ids.h"

namespace gc3::sim {

struct Flow {
  struct Use {
    std::uint32_t resource = 0;
    double weight = 1;  // bytes of the resource per byte of the flow
  };
  std::vector<Use> uses;
  double most = 0;                   // its own limit, in bytes per second
  double rate = 0;                   // the result
  std::uint32_t bottleneck = kNone;  // the resource that limits it; none: its own limit
};

// Sets the rates: all rise together, and each stops at its own limit or at a resource that is full.
void share_fairly(std::vector<Flow*>& flows, const std::vector<double>& capacity);

}  // namespace gc3::sim
