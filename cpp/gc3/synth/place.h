// Assigns steps to the sends of trees: a chunk is sent on as soon as it has arrived and the edge has room.
//
// Several orders of preference are tried. Then sends are moved from step to step (`shift`), to save the last steps.
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

// What a bound carries: `chunks` in so many `rounds`.
struct Bandwidth {
  Amount chunks = 0;
  Amount rounds = 1;
};

struct Placed {
  std::vector<std::uint32_t> rounds;  // of each step
  std::vector<std::uint32_t> step;    // of each hop
};

// Returns the step of each hop; empty if `seconds` was too short, or a bound carries nothing.
//
// `bounds_of`: the bounds that each edge counts towards, several times if a send also stands for its images under
// symmetries; `rounds`: those of each step. If it is 0, they are chosen: steps have one round if all bandwidths are
// whole. Of fractions, a step of few rounds loses a part, and a hop waits for a step of many, so there are steps of
// both kinds. `moving`: whether sends are moved in the end, so that chunks overtake each other. It takes longer.
std::optional<Placed> place_hops(const std::vector<Hop>& hops, const std::vector<std::vector<std::uint32_t>>& bounds_of,
                                 const std::vector<Bandwidth>& bandwidths, std::uint32_t rounds, bool moving,
                                 double seconds);

}  // namespace gc3::synth
