// Trees that are grown one after the other over the least loaded edges; an edge costs more the fuller its bounds are.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gc3/base/ids.h"
#include "gc3/synth/flow.h"

namespace gc3::synth {

// Data of one rank, with the ranks that need it.
struct Wanted {
  std::uint32_t source = 0;
  std::vector<std::uint32_t> targets;
};

// A send of a tree: its edge, and the position in the tree of the send that brings the data to its sender; kNone at the
// source.
struct Sprout {
  std::uint32_t edge = 0;
  std::uint32_t before = 0;
};

struct Field {
  std::uint32_t ranks = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;  // (from, to)
  // The bounds that each edge counts towards; several times if a send also stands for its images under symmetries.
  std::vector<std::vector<std::uint32_t>> bounds_of;
  std::vector<double> room;  // of each bound in a round
  double fewest = 1;         // rounds, to which loads are compared
  // Under symmetries: for each edge the first edge of its orbit, and for each rank the first rank of its orbit.
  std::vector<std::uint32_t> edge_orbits;
  std::vector<std::uint32_t> rank_orbits;
  std::uint32_t peers = kNone;       // to which a rank should send, and from which it should receive, at most
  std::vector<std::uint32_t> known;  // edges, one of each orbit, that have been chosen before
};

// Returns a tree for each entry of `order`, the number of what it distributes. In passes after the first one, every
// tree is grown again beside all others. None: `seconds` was too short. Targets must be reachable.
std::optional<std::vector<std::vector<Sprout>>> grow_trees(const Field& field, const std::vector<Wanted>& wanted,
                                                           const std::vector<std::uint32_t>& order,
                                                           std::uint32_t passes, double seconds);

}  // namespace gc3::synth
