// Trees that load every link and switch no more than it carries: packing of spanning arborescences (Edmonds; Frank).
//
// The graph has ranks, and vertices that only pass data on, as switches do. First the latter go: arcs into and out of
// one are replaced by arcs past it, so many as leave all maximum flows to the ranks what they must be (edge splitting).
// Then trees grow from their roots arc by arc, each with as many copies as leave room for all others. The idea of doing
// so for collectives is that of ForestColl (arXiv 2402.06787).
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
  std::uint32_t ranks = 0;     // vertices 0, 1, ...; those after them pass data on
  std::uint32_t vertices = 0;  // all of them
  std::vector<Arc> arcs;
  // (tail, via, head): what comes from `tail` over `via` may go on to `head`. Of a way of several vertices all triples.
  std::vector<std::array<std::uint32_t, 3>> ways;
};

struct Branch {
  std::uint32_t tail = 0;
  std::uint32_t head = 0;
};

struct Tree {
  std::uint32_t root = 0;
  Amount copies = 0;
  std::vector<Branch> branches;  // to all other ranks, each after the one that brings its tail
};

// Returns trees, `copies` from every root, that load no arc beyond its capacity. None: the graph does not allow them,
// its switches could not be replaced, or `seconds` were not enough.
std::optional<std::vector<Tree>> pack_trees(const Graph& graph, const std::vector<std::uint32_t>& roots, Amount copies,
                                            double seconds);

}  // namespace gc3::synth
