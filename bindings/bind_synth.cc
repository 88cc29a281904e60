#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "convert.h"
#include "gc3/base/ids.h"
#include "gc3/synth/cut.h"
#include "gc3/synth/flatten.h"
#include "gc3/synth/forest.h"
#include "gc3/synth/grow.h"
#include "gc3/synth/place.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {

namespace {

using Branches = std::vector<std::tuple<std::uint32_t, std::uint32_t>>;
using Trees = std::vector<std::tuple<std::uint32_t, synth::Amount, Branches>>;

Trees listed_trees(const std::vector<synth::Tree>& trees) {
  Trees found;
  for (const synth::Tree& tree : trees) {
    Branches branches;
    for (const synth::Branch& b : tree.branches) branches.emplace_back(b.tail, b.head);
    found.emplace_back(tree.root, tree.copies, std::move(branches));
  }
  return found;
}

std::vector<synth::Tree> trees_of(const Trees& trees) {
  std::vector<synth::Tree> found;
  for (const auto& [root, copies, branches] : trees) {
    found.push_back({root, copies, {}});
    for (const auto& [tail, head] : branches) found.back().branches.push_back({tail, head});
  }
  return found;
}

}  // namespace

void bind_synth(nb::module_& m) {
  using Arcs = std::vector<std::tuple<std::uint32_t, std::uint32_t, synth::Amount>>;
  m.def(
      "pack_trees",
      [](std::uint32_t ranks, std::uint32_t vertices, const Arcs& arcs, std::vector<std::array<std::uint32_t, 3>> ways,
         const std::vector<std::tuple<std::uint32_t, synth::Amount>>& roots, double seconds) -> std::optional<Trees> {
        synth::Graph graph{ranks, vertices, {}, std::move(ways)};
        for (const auto& [tail, head, capacity] : arcs) graph.arcs.push_back({tail, head, capacity});
        std::vector<synth::Root> listed;
        for (const auto& [rank, copies] : roots) listed.push_back({rank, copies});
        const auto packed = synth::pack_trees(graph, listed, seconds);
        if (!packed) return std::nullopt;
        return listed_trees(*packed);
      },
      "ranks"_a, "vertices"_a, "arcs"_a, "ways"_a, "roots"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Packs spanning trees (root, copies, branches), for each root (rank, copies), into arcs (tail, head, capacity).");
  m.def(
      "flatten_trees",
      [](std::uint32_t ranks, std::vector<std::pair<std::uint32_t, std::uint32_t>> edges,
         std::vector<std::vector<std::uint32_t>> bounds_of, std::vector<synth::Amount> room, const Trees& trees,
         double seconds) {
        const synth::Plain plain{ranks, std::move(edges), std::move(bounds_of), std::move(room)};
        return listed_trees(synth::flatten(plain, trees_of(trees), seconds));
      },
      "ranks"_a, "edges"_a, "bounds_of"_a, "room"_a, "trees"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Returns trees (root, copies, branches) of less depth that load no bound beyond its room.");
  using Needs = std::vector<std::tuple<std::uint32_t, std::vector<std::pair<std::uint32_t, synth::Amount>>>>;
  using Cut = std::tuple<std::size_t, synth::Amount, std::vector<std::uint32_t>>;
  m.def(
      "narrow_cut",
      [](std::uint32_t ranks, std::uint32_t vertices, const Arcs& arcs, const Needs& needs, std::size_t begin,
         synth::Amount rounds, synth::Amount times, double seconds) -> std::optional<Cut> {
        synth::Graph graph{ranks, vertices, {}, {}};
        for (const auto& [tail, head, capacity] : arcs) {
          graph.arcs.push_back({tail, head, capacity < 0 ? synth::kEndless : capacity});
        }
        std::vector<synth::Need> listed;
        for (const auto& [target, supply] : needs) listed.push_back({target, supply});
        const auto cut = synth::narrow_cut(graph, listed, begin, rounds, times, seconds);
        if (!cut) return std::nullopt;
        return Cut{cut->need, cut->room, cut->inside};
      },
      "ranks"_a, "vertices"_a, "arcs"_a, "needs"_a, "begin"_a, "rounds"_a, "times"_a, "seconds"_a,
      nb::call_guard<nb::gil_scoped_release>(),
      "The first need (target, (rank, amount)...) that `rounds` times the arcs (tail, head, capacity or -1) do not "
      "carry `times` times, as (index, capacity, ranks) of a cut; none if there is none, or the time was over.");
  using Wanted = std::vector<std::tuple<std::uint32_t, std::vector<std::uint32_t>>>;
  m.def(
      "grow_trees",
      [](std::uint32_t ranks, std::vector<std::pair<std::uint32_t, std::uint32_t>> edges,
         std::vector<std::vector<std::uint32_t>> bounds_of, std::vector<double> room, double fewest,
         std::vector<std::uint32_t> edge_orbits, std::vector<std::uint32_t> rank_orbits, std::uint32_t peers,
         std::vector<std::uint32_t> known, const Wanted& wanted, const std::vector<std::uint32_t>& order,
         std::uint32_t passes,
         double seconds) -> std::optional<std::vector<std::vector<std::tuple<std::uint32_t, std::int64_t>>>> {
        const synth::Field field{ranks,           std::move(edges),       std::move(bounds_of),   std::move(room),
                                 fewest,          std::move(edge_orbits), std::move(rank_orbits), peers,
                                 std::move(known)};
        std::vector<synth::Wanted> listed;
        for (const auto& [source, targets] : wanted) listed.push_back({source, targets});
        const auto grown = synth::grow_trees(field, listed, order, passes, seconds);
        if (!grown) return std::nullopt;
        std::vector<std::vector<std::tuple<std::uint32_t, std::int64_t>>> found(grown->size());
        for (std::size_t i = 0; i < grown->size(); ++i) {
          for (const synth::Sprout& s : (*grown)[i]) {
            found[i].emplace_back(s.edge, s.before == kNone ? -1 : static_cast<std::int64_t>(s.before));
          }
        }
        return found;
      },
      "ranks"_a, "edges"_a, "bounds_of"_a, "room"_a, "fewest"_a, "edge_orbits"_a, "rank_orbits"_a, "peers"_a, "known"_a,
      "wanted"_a, "order"_a, "passes"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Grows a tree (edge, previous branch or -1) for each number of `wanted` (source, targets) in `order`.");
  m.def(
      "place_hops",
      [](const std::vector<std::tuple<std::uint32_t, std::uint32_t, std::vector<std::uint32_t>>>& hops,
         const std::vector<std::vector<std::uint32_t>>& bounds_of,
         const std::vector<std::pair<synth::Amount, synth::Amount>>& bandwidths, std::uint32_t rounds, bool moving,
         double seconds) -> std::optional<std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>> {
        std::vector<synth::Hop> listed;
        for (const auto& [edge, turn, before] : hops) listed.push_back({edge, turn, before});
        std::vector<synth::Bandwidth> carried;
        for (const auto& [chunks, per] : bandwidths) carried.push_back({chunks, per});
        auto placed = synth::place_hops(listed, bounds_of, carried, rounds, moving, seconds);
        if (!placed) return std::nullopt;
        return std::pair(std::move(placed->rounds), std::move(placed->step));
      },
      "hops"_a, "bounds_of"_a, "bandwidths"_a, "rounds"_a, "moving"_a, "seconds"_a,
      nb::call_guard<nb::gil_scoped_release>(),
      "Returns the rounds of each step, and the step of each hop (edge, turn, previous hops); none if the time was "
      "over.");
}

}  // namespace gc3::bindings
