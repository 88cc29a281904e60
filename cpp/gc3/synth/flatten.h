// Makes packed trees shallow, and leaves their load on every bound within its room.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "gc3/synth/forest.h"

namespace gc3::synth {

struct Plain {
  std::uint32_t ranks = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;  // (from, to)
  std::vector<std::vector<std::uint32_t>> bounds_of;           // the bounds that each edge counts towards
  std::vector<Amount> room;                                    // of each bound, for all copies of all trees
};

// Returns trees with the same roots and copies, of less depth. They may load edges that the given trees do not use.
//
// A rank gets a parent that is nearer to the root. If there is no room for that, a branch of some tree that is in the
// way gets another parent at the same time. `seconds`: the time limit.
std::vector<Tree> flatten(const Plain& network, const std::vector<Tree>& trees, double seconds);

}  // namespace gc3::synth
