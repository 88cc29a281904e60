// Replaces the vertices of a graph that are not ranks by arcs past them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gc3/synth/deadline.h"
#include "gc3/synth/forest.h"

namespace gc3::synth {

// Returns arcs between ranks that allow the same flow from the roots, their copies, to every rank as the graph.
std::optional<std::vector<Arc>> split_off(const Graph& graph, const std::vector<Root>& roots, Deadline deadline);

}  // namespace gc3::synth
