// Cuts of a graph that limit how fast data gets to a vertex.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gc3/synth/forest.h"

namespace gc3::synth {

// Data that a vertex must receive.
struct Need {
  std::uint32_t target = 0;
  std::vector<std::pair<std::uint32_t, Amount>> supply;  // (rank, amount that begins there), each rank once
};

struct Cut {
  std::size_t need = 0;               // the index of the need that is not met
  Amount room = 0;                    // the capacity from one side to the other, for one round
  std::vector<std::uint32_t> inside;  // the ranks on the side without the target
};

// Returns the first need, of those from `begin` on, whose `supply` takes more than `rounds` times the capacities, and a
// minimum cut of the two. All products must be far below `kEndless`, which an arc of any capacity has.
// None: there is none, or the time was over.
std::optional<Cut> narrow_cut(const Graph& graph, const std::vector<Need>& needs, std::size_t begin, Amount rounds,
                              Amount times, double seconds);

}  // namespace gc3::synth
