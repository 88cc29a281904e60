// Gives the sends of trees their steps: a chunk goes on as soon as it is there and there is room.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gc3/synth/flow.h"

namespace gc3::synth {

struct Hop {
  std::uint32_t edge = 0;
  std::int32_t before = -1;  // the hop that brings the chunk, which is listed earlier; none: it is there from the start
  std::uint32_t turn = 0;    // of chunks that want the same, those with a lower number are preferred
};

// Returns the step of each hop, none where `seconds` were not enough.
//
// `bounds_of` are the bounds that each edge is in, `room` is what each bound carries in a step.
std::optional<std::vector<std::uint32_t>> place_hops(const std::vector<Hop>& hops,
                                                     const std::vector<std::vector<std::uint32_t>>& bounds_of,
                                                     const std::vector<Amount>& room, double seconds);

}  // namespace gc3::synth
