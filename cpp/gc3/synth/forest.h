// Trees that load no link or switch beyond its capacity: packing of spanning arborescences (Edmonds; Frank).
//
// The graph has ranks, and other vertices that only forward data, such as switches. First those are removed (edge
// splitting): arcs into and out of one are replaced by arcs past it, so that all maximum flows to the ranks keep the
// required value. Then trees grow from their roots arc by arc, each with as many copies as leave room for all others.
// ForestColl (arXiv 2402.06787) has the idea of using this for collectives.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "gc3/synth/flow.h"

namespace gc3::synth {

struct Arc {
  std::uint32_t tail = 0;
  std::uint32_t head = 0;
  Amount capacity = 0;
};

struct Graph {
  std::uint32_t ranks = 0;     // vertices 0, 1, ...; those after them only forward data
  std::uint32_t vertices = 0;  // all of them
  std::vector<Arc> arcs;
  // (tail, via, head): data from `tail` over `via` may go on to `head`. A path over several vertices has one triple for
  // each.
  std::vector<std::array<std::uint32_t, 3>> ways;
};

struct Root {
  std::uint32_t rank = 0;
  Amount copies = 0;  // of trees from there
};

struct Branch {
  std::uint32_t tail = 0;
  std::uint32_t head = 0;
};

struct Tree {
  std::uint32_t root = 0;
  Amount copies = 0;
  std::vector<Branch> branches;  // to all other ranks, each after the one that brings the data to its tail
};

// Returns trees, as many from every root as it asks for, that load no arc beyond its capacity. None: the graph does not
// allow them, its switches could not be replaced, or `seconds` was too short.
std::optional<std::vector<Tree>> pack_trees(const Graph& graph, const std::vector<Root>& roots, double seconds);

}  // namespace gc3::synth
