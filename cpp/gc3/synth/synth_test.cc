// Compares trees with all cuts of random graphs, and steps with the capacities.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <random>
#include <set>

#include "gc3/synth/cut.h"
#include "gc3/synth/flatten.h"
#include "gc3/synth/flow.h"
#include "gc3/synth/forest.h"
#include "gc3/synth/grow.h"
#include "gc3/synth/place.h"

namespace gc3::synth {
namespace {

constexpr double kSeconds = 60;

struct Chance {
  std::mt19937 engine;
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(engine() % n); }
};

// How many times the copies of every root fit: the capacity into a set of ranks divided by what the roots outside send.
Amount most_times(const Graph& graph, const std::vector<Root>& roots) {
  Amount least = kEndless;
  for (std::uint32_t set = 1; set < (1U << graph.ranks); ++set) {
    const auto in = [&](std::uint32_t v) { return ((set >> v) & 1U) != 0; };
    Amount entering = 0;
    for (const Arc& arc : graph.arcs) entering += in(arc.head) && !in(arc.tail) ? arc.capacity : 0;
    Amount outside = 0;
    for (const auto& [rank, copies] : roots) outside += in(rank) ? 0 : copies;
    if (outside > 0) least = std::min(least, entering / outside);
  }
  return least;
}

void check_trees(const std::vector<Tree>& trees, std::uint32_t ranks, const std::vector<Root>& roots,
                 std::map<std::pair<std::uint32_t, std::uint32_t>, Amount> room) {
  std::map<std::uint32_t, Amount> begun;
  for (const Tree& tree : trees) {
    CHECK(tree.copies > 0);
    begun[tree.root] += tree.copies;
    std::vector<bool> has(ranks);
    has[tree.root] = true;
    CHECK(tree.branches.size() == ranks - 1);
    for (const Branch& b : tree.branches) {
      CHECK(has[b.tail]);
      CHECK(!has[b.head]);
      has[b.head] = true;
      room[{b.tail, b.head}] -= tree.copies;
      CHECK(room[{b.tail, b.head}] >= 0);
    }
  }
  for (const auto& [rank, copies] : roots) CHECK(begun[rank] == copies);
}

std::vector<Root> times(std::vector<Root> roots, Amount factor) {
  for (Root& root : roots) root.copies *= factor;
  return roots;
}

TEST_CASE("as many trees as every cut allows, and no more") {
  Chance chance{std::mt19937(1)};  // NOLINT(*-msc51-cpp) - the same every time
  for (int round = 0; round < 200; ++round) {
    Graph graph;
    graph.ranks = graph.vertices = 2 + chance.below(5);
    std::map<std::pair<std::uint32_t, std::uint32_t>, Amount> room;
    for (std::uint32_t a = 0; a < graph.ranks; ++a) {
      for (std::uint32_t b = 0; b < graph.ranks; ++b) {
        if (a == b || (b != (a + 1) % graph.ranks && chance.below(2) == 0)) continue;
        room[{a, b}] = 1 + chance.below(9);
        graph.arcs.push_back({a, b, 36 * room[{a, b}]});  // enough for a copy from every root
        room[{a, b}] *= 36;
      }
    }
    std::vector<Root> roots = {{chance.below(graph.ranks), 1}};
    if (chance.below(2) == 0) {
      roots.clear();
      for (std::uint32_t r = 0; r < graph.ranks; ++r) roots.push_back({r, 1 + chance.below(3)});
    }
    const Amount most = most_times(graph, roots);
    const auto trees = pack_trees(graph, times(roots, most), kSeconds);
    REQUIRE(trees.has_value());
    check_trees(*trees, graph.ranks, times(roots, most), room);
    CHECK(!pack_trees(graph, times(roots, most + 1), kSeconds).has_value());
  }
}

TEST_CASE("a switch is replaced by links past it") {
  for (const std::uint32_t ranks : {2U, 3U, 8U, 17U}) {
    Graph graph{ranks, ranks + 1, {}, {}};
    std::vector<Root> roots;
    for (std::uint32_t a = 0; a < ranks; ++a) {
      roots.push_back({a, 3});
      graph.arcs.push_back({a, ranks, 3 * (ranks - 1)});
      graph.arcs.push_back({ranks, a, 3 * (ranks - 1)});
      for (std::uint32_t b = 0; b < ranks; ++b) {
        if (a != b) graph.ways.push_back({a, ranks, b});
      }
    }
    const auto trees = pack_trees(graph, roots, kSeconds);
    REQUIRE(trees.has_value());
    std::vector<Amount> sent(ranks);
    std::vector<Amount> received(ranks);
    for (const Tree& tree : *trees) {
      for (const Branch& b : tree.branches) {
        sent[b.tail] += tree.copies;
        received[b.head] += tree.copies;
      }
    }
    for (std::uint32_t a = 0; a < ranks; ++a) {
      CHECK(sent[a] <= 3 * (ranks - 1));
      CHECK(received[a] == 3 * (ranks - 1));
    }
    CHECK(!pack_trees(graph, times(roots, 2), kSeconds).has_value());
    CHECK(!pack_trees(graph, roots, 0).has_value());  // no time
  }
}

std::uint32_t depth_of(const Tree& tree, std::uint32_t ranks) {
  std::vector<std::uint32_t> depth(ranks);
  std::uint32_t deepest = 0;
  for (const Branch& b : tree.branches) deepest = std::max(deepest, depth[b.head] = depth[b.tail] + 1);
  return deepest;
}

TEST_CASE("trees become shallow, and load nothing beyond its room") {
  // A chain and its reverse on a switch with three copies at each port.
  constexpr std::uint32_t kRanks = 9;
  Plain plain{kRanks, {}, {}, std::vector<Amount>(2 * kRanks, 3)};
  std::map<std::pair<std::uint32_t, std::uint32_t>, Amount> room;
  for (std::uint32_t a = 0; a < kRanks; ++a) {
    for (std::uint32_t b = 0; b < kRanks; ++b) {
      if (a == b) continue;
      plain.edges.emplace_back(a, b);
      plain.bounds_of.push_back({a, kRanks + b});
      room[{a, b}] = 3;
    }
  }
  Tree up{0, 1, {}};
  Tree down{0, 2, {}};
  for (std::uint32_t r = 1; r < kRanks; ++r) {
    up.branches.push_back({r - 1, r});
    down.branches.push_back({(kRanks + 1 - r) % kRanks, kRanks - r});
  }
  const std::vector<Tree> flat = flatten(plain, {up, down}, kSeconds);
  check_trees(flat, kRanks, {{0, 3}}, room);
  CHECK(depth_of(flat[0], kRanks) <= 4);
  std::vector<Amount> load(2 * kRanks);
  for (const Tree& tree : flat) {
    for (const Branch& b : tree.branches) {
      load[b.tail] += tree.copies;
      load[kRanks + b.head] += tree.copies;
    }
  }
  CHECK(std::ranges::max(load) <= 3);
  const std::vector<Tree> same = flatten(plain, {up, down}, 0);  // no time
  CHECK(depth_of(same[0], kRanks) == kRanks - 1);
}

TEST_CASE("trees of one root on links that are all needed exchange their branches") {
  // A torus of 5x5: its 100 links, less the four into the root, are those of four trees.
  constexpr std::uint32_t kSide = 5;
  constexpr std::uint32_t kRanks = kSide * kSide;
  Graph graph{kRanks, kRanks, {}, {}};
  Plain plain{kRanks, {}, {}, {}};
  std::map<std::pair<std::uint32_t, std::uint32_t>, Amount> room;
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    const std::uint32_t x = r % kSide;
    const std::uint32_t y = r / kSide;
    for (const std::uint32_t to : {(((x + 1) % kSide) + (y * kSide)), (((x + kSide - 1) % kSide) + (y * kSide)),
                                   (x + ((y + 1) % kSide * kSide)), (x + ((y + kSide - 1) % kSide * kSide))}) {
      graph.arcs.push_back({r, to, 1});
      plain.bounds_of.push_back({static_cast<std::uint32_t>(plain.edges.size())});
      plain.edges.emplace_back(r, to);
      plain.room.push_back(1);
      room[{r, to}] = 1;
    }
  }
  const auto trees = pack_trees(graph, {{0, 4}}, kSeconds);
  REQUIRE(trees.has_value());
  const std::vector<Tree> flat = flatten(plain, *trees, kSeconds);
  check_trees(flat, kRanks, {{0, 4}}, room);
  for (const Tree& tree : flat) CHECK(depth_of(tree, kRanks) <= 7);
}

TEST_CASE("trees reach all targets and spread over equal links") {
  // Four ranks, all linked: a send of the first stands for one of each, which loads all links of its distance.
  Field field{4, {}, {}, {1, 1, 1}, 3, {}, {}, kNone, {}};
  for (std::uint32_t a = 0; a < 4; ++a) {
    for (std::uint32_t shift = 1; shift < 4; ++shift) {
      field.edges.emplace_back(a, (a + shift) % 4);
      field.bounds_of.push_back({shift - 1});
      field.edge_orbits.push_back(shift - 1);  // the edges of rank 0 are the first
    }
  }
  field.rank_orbits.assign(4, 0);
  const std::vector<Wanted> wanted = {{0, {1, 2, 3}}};
  const auto trees = grow_trees(field, wanted, {0, 0, 0}, 2, kSeconds);
  REQUIRE(trees.has_value());
  std::array<int, 3> load{};
  for (const std::vector<Sprout>& tree : *trees) {
    std::vector<bool> has(4);
    has[0] = true;
    REQUIRE(tree.size() == 3);
    for (std::size_t i = 0; i < tree.size(); ++i) {
      const auto [from, to] = field.edges[tree[i].edge];
      CHECK(has[from]);
      CHECK(!has[to]);
      has[to] = true;
      CHECK((from == 0 || field.edges[tree[tree[i].before].edge].second == from));
      ++load[field.bounds_of[tree[i].edge][0]];
    }
  }
  CHECK(load == std::array<int, 3>{3, 3, 3});
  for (std::uint32_t peers = 1; peers <= 3; ++peers) {
    field.peers = peers;
    field.fewest = 100;  // the load matters less than the number of peers
    const auto few = grow_trees(field, wanted, {0}, 2, kSeconds);
    REQUIRE(few.has_value());
    std::set<std::uint32_t> shifts;
    for (const Sprout& s : few->front()) shifts.insert(field.edge_orbits[s.edge]);
    CHECK(few->front().size() == 3);
    CHECK(shifts.size() == peers);
  }
  field.peers = 1;
  field.known = {2};
  const auto one = grow_trees(field, wanted, {0}, 2, kSeconds);
  REQUIRE(one.has_value());
  for (const Sprout& s : one->front()) CHECK(field.edge_orbits[s.edge] == 2);
  CHECK(!grow_trees(field, wanted, {0}, 1, 0).has_value());  // no time
}

TEST_CASE("trees reach all targets where the load is far above the rounds to which it is compared") {
  const Field field{3, {{0, 1}, {1, 2}}, {{0}, {1}}, {1e-3, 1}, 1, {0, 1}, {0, 1, 2}, kNone, {}};
  const auto trees = grow_trees(field, {{0, {1, 2}}}, std::vector<std::uint32_t>(100), 2, kSeconds);
  REQUIRE(trees.has_value());
  for (const std::vector<Sprout>& tree : *trees) CHECK(tree.size() == 2);
}

TEST_CASE("hops take place when their data has arrived and there is room") {
  Chance chance{std::mt19937(2)};  // NOLINT(*-msc51-cpp) - the same every time
  for (std::uint32_t round = 0; round < 50; ++round) {
    const std::uint32_t edges = 1 + chance.below(6);
    std::vector<std::vector<std::uint32_t>> bounds_of(edges);
    std::vector<Bandwidth> bandwidths(3);
    for (Bandwidth& each : bandwidths) each = {1 + chance.below(5), 1 + (round % 2 == 0 ? 0 : chance.below(3))};
    for (auto& bounds : bounds_of) {
      bounds = {chance.below(2)};
      if (chance.below(2) == 0) bounds.push_back(2);
    }
    std::vector<Hop> hops;
    for (std::uint32_t i = 0; i < 100; ++i) {
      hops.push_back({chance.below(edges), i / 7, {}});
      for (std::uint32_t k = i > 0 ? chance.below(4) : 0; k > 0; --k) hops.back().before.push_back(chance.below(i));
    }
    const std::uint32_t rounds = round % 5 == 0 ? 3 : 0;
    const auto placed = place_hops(hops, bounds_of, bandwidths, rounds, round % 3 > 0, kSeconds);
    REQUIRE(placed.has_value());
    CHECK(placed->rounds.size() == std::ranges::max(placed->step) + std::size_t{1});
    std::map<std::pair<std::uint32_t, std::uint32_t>, Amount> used;
    for (std::size_t i = 0; i < hops.size(); ++i) {
      const std::uint32_t step = placed->step[i];
      if (rounds > 0) CHECK(placed->rounds[step] == rounds);
      for (const std::uint32_t before : hops[i].before) CHECK(step > placed->step[before]);
      for (const std::uint32_t b : bounds_of[hops[i].edge]) {
        CHECK(++used[{step, b}] * bandwidths[b].rounds <= bandwidths[b].chunks * placed->rounds[step]);
      }
    }
  }
  CHECK(place_hops({}, {}, {}, 0, true, kSeconds)->step.empty());
  CHECK(!place_hops({{0, 0, {}}}, {{0}}, {{0, 1}}, 0, true, kSeconds).has_value());  // it never takes place
}

TEST_CASE("hops between ports take as many steps as the fullest port has") {  // an edge coloring (Koenig)
  Chance chance{std::mt19937(5)};  // NOLINT(*-msc51-cpp) - the same every time
  constexpr std::uint32_t kPorts = 8;
  constexpr std::uint32_t kSteps = 60;
  std::vector<std::vector<std::uint32_t>> bounds_of;
  for (std::uint32_t e = 0; e < kPorts * kPorts; ++e) bounds_of.push_back({e / kPorts, kPorts + (e % kPorts)});
  std::vector<Hop> hops;
  std::array<std::uint32_t, kPorts> to{};
  for (std::uint32_t a = 0; a < kPorts; ++a) to[a] = a;
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    std::ranges::shuffle(to, chance.engine);
    for (std::uint32_t a = 0; a < kPorts; ++a) hops.push_back({(a * kPorts) + to[a], chance.below(kSteps), {}});
  }
  const auto placed = place_hops(hops, bounds_of, std::vector<Bandwidth>(2 * kPorts, {1, 1}), 0, true, kSeconds);
  REQUIRE(placed.has_value());
  CHECK(placed->rounds.size() == kSteps);
}

TEST_CASE("few hops that cannot save a step are not moved for long") {
  // Any two of three hops share a bound of one chunk. Each bound has the load of two steps, and the hops take three.
  const std::clock_t begun = std::clock();
  for (std::uint32_t time = 0; time < 20; ++time) {
    const auto placed = place_hops({{0, 0, {}}, {1, 0, {}}, {2, 0, {}}}, {{0, 1}, {1, 2}, {2, 0}},
                                   std::vector<Bandwidth>(3, {1, 1}), 0, true, kSeconds);
    REQUIRE(placed.has_value());
    CHECK(placed->rounds.size() == 3);
  }
  // With the effort for many hops each takes a third of a second.
  CHECK(std::clock() - begun < CLOCKS_PER_SEC);
}

TEST_CASE("steps of different lengths lose little of a fraction") {
  std::vector<Hop> hops;
  for (std::uint32_t chunk = 0; chunk < 90; ++chunk) {  // over a link of 3 chunks a round, and then one of 3 in 2
    hops.push_back({0, chunk, {}});
    hops.push_back({1, chunk, {2 * chunk}});
  }
  const auto placed = place_hops(hops, {{0}, {1}}, {{3, 1}, {3, 2}}, 0, true, kSeconds);
  REQUIRE(placed.has_value());
  std::uint32_t total = 0;
  for (const std::uint32_t rounds : placed->rounds) total += rounds;
  CHECK(total == 61);  // with steps of 1 round 91, of 2 62
}

TEST_CASE("a narrow cut is one of all cuts, and there is none if each of them is wide enough") {
  Chance chance{std::mt19937(3)};  // NOLINT(*-msc51-cpp) - the same every time
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t ranks = 2 + chance.below(3);
    const std::uint32_t vertices = ranks + chance.below(3);
    Graph graph{ranks, vertices, {}, {}};
    for (std::uint32_t a = 0; a < vertices * 3; ++a) {
      graph.arcs.push_back(
          {chance.below(vertices), chance.below(vertices), chance.below(4) == 0 ? kEndless : chance.below(5)});
    }
    const Need need{chance.below(ranks), {{0, 1 + chance.below(6)}, {1, 2}}};
    const Amount rounds = 1 + chance.below(3);
    const Amount times = 1 + chance.below(2);
    bool wide = true;
    const auto room_of = [&](auto in) {
      Amount room = 0;
      for (const Arc& arc : graph.arcs) room += in(arc.tail) && !in(arc.head) ? arc.capacity : 0;
      return room;
    };
    const auto supplied = [&](auto in) {
      Amount sum = 0;
      for (const auto& [rank, amount] : need.supply) sum += in(rank) ? amount : 0;
      return sum;
    };
    for (std::uint32_t set = 0; set < (1U << vertices); ++set) {
      const auto in = [&](std::uint32_t v) { return ((set >> v) & 1U) != 0; };
      if (in(need.target)) continue;
      const Amount room = std::min(room_of(in), kEndless / rounds);
      wide = wide && room * rounds >= supplied(in) * times;
    }
    const auto cut = narrow_cut(graph, {{0, {}}, need}, 0, rounds, times, kSeconds);
    CHECK(cut.has_value() == !wide);
    if (cut) {
      CHECK(cut->need == 1);
      CHECK(cut->room * rounds <
            supplied([&](std::uint32_t v) { return std::ranges::count(cut->inside, v) > 0; }) * times);
      CHECK(std::ranges::count(cut->inside, need.target) == 0);
    }
  }
  CHECK(!narrow_cut({2, 2, {}, {}}, {{0, {{1, 1}}}}, 0, 1, 1, -1).has_value());  // no time
  CHECK(narrow_cut({2, 2, {}, {}}, {{0, {{1, 1}}}}, 0, 1, 1, kSeconds).has_value());
}

}  // namespace
}  // namespace gc3::synth
