// Saves steps of a schedule by moving hops from step to step.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "gc3/synth/lengths.h"

namespace gc3::synth {

// Returns a schedule of the given number of steps, made from a longer one; empty if none was found.
//
// Hops that are too late are taken out and enter a step in which they are in the way of few others. These are taken out
// and enter other steps, and so on: as an augmenting path changes a matching, but for any bounds. Steps and hops that
// were in the way often cost more, so that the search does not turn in circles.
//
// `effort`: the number of pairs of a hop and a step to look at; what was used is subtracted. `deadline`: the latest
// end.
std::optional<std::vector<std::uint32_t>> shifted(const Work& work, const Rooms& rooms,
                                                  const std::vector<std::uint32_t>& from, std::uint32_t steps,
                                                  std::int64_t& effort, std::chrono::steady_clock::time_point deadline);

}  // namespace gc3::synth
