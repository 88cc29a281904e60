// What sends count towards: bounds on the load of sets of edges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gc3/synth/flow.h"

namespace gc3::synth {

// A bound, and how often a send counts towards it: more than once if it stands for its images under symmetries.
struct Load {
  std::uint32_t bound = 0;
  Amount times = 0;
};

// Counts how often each bound is listed, for every edge.
inline std::vector<std::vector<Load>> loads_of(const std::vector<std::vector<std::uint32_t>>& bounds_of) {
  std::vector<std::vector<Load>> found(bounds_of.size());
  for (std::size_t e = 0; e < bounds_of.size(); ++e) {
    for (const std::uint32_t b : bounds_of[e]) {
      const auto at = std::ranges::find(found[e], b, &Load::bound);
      if (at == found[e].end()) {
        found[e].push_back({b, 1});
      } else {
        ++at->times;
      }
    }
  }
  return found;
}

}  // namespace gc3::synth
