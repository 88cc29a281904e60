// Assigns steps to the sends of trees: a chunk is sent on as soon as it has arrived and the edge has room.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gc3/synth/flow.h"

namespace gc3::synth {

struct Hop {
  std::uint32_t edge = 0;
  std::uint32_t turn = 0;             // among chunks that compete, those with a lower number are preferred
  std::vector<std::uint32_t> before;  // the hops that bring what it sends, listed earlier; none: it is there already
};

// Returns the step of each hop; empty if `seconds` was too short.
//
// `bounds_of`: the bounds that each edge counts towards, several times if a send also stands for its images under
// symmetries; `room`: what each bound carries in a step.
std::optional<std::vector<std::uint32_t>> place_hops(const std::vector<Hop>& hops,
                                                     const std::vector<std::vector<std::uint32_t>>& bounds_of,
                                                     const std::vector<Amount>& room, double seconds);

}  // namespace gc3::synth
