// The parts of the simulator by themselves: the queue, fair rates, routes, and how calls are cut.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "gc3/base/errors/simulator.h"
#include "gc3/sim/event_queue.h"
#include "gc3/sim/fair_rates.h"
#include "gc3/sim/machine.h"
#include "gc3/sim/timing.h"

namespace gc3::sim {
namespace {

MachineData two_nodes() {
  MachineData data;
  data.node_of = {0, 0, 1};
  data.resources = {{1e9, 0}, {2e9, 0}, {3e9, 0}, {4e9, 0}};
  data.classes = {{1e-6, 0, 0, false}, {2e-6, 0, 0, true}};
  data.links = {{0, 1, 0, {3}}};
  data.fabrics = {{1, true, {{0, {0}, {1}}, {0, {2}, {2}}, {1, {0}, {1}}, {2, {1}, {0}}}}};
  return data;
}

Flow flow(std::vector<Flow::Use> uses, double most = 1e18) {
  Flow f;
  f.uses = std::move(uses);
  f.most = most;
  return f;
}

Status checked(const ProtocolTiming& protocol, const Start& start, const Call& call) {
  Options options;
  options.protocol = protocol;
  options.start = start;
  return check(options, call, 2);
}

ProtocolTiming simple(std::uint64_t slot, std::uint32_t slices, std::uint64_t least) {
  ProtocolTiming p;
  p.slot_bytes = slot;
  p.slices = slices;
  p.min_slice_bytes = least;
  p.bytes_per_s.fill(1e9);
  return p;
}

std::uint32_t total(const MessageCut& cut) {
  std::uint32_t bytes = 0;
  for (std::uint32_t s = 0; s < cut.slices; ++s) bytes += cut.slice(s).bytes;
  return bytes;
}

}  // namespace

TEST_CASE("the queue orders events by time, then by threadblock, for any order of pushes and pops") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    EventQueue queue;
    std::vector<Event> expected;
    for (int k = 0; k < 400; ++k) {
      if (!expected.empty() && random() % 3 == 0) {
        const auto least =
            std::ranges::min_element(expected, [](const Event& a, const Event& b) { return a.before(b); });
        CHECK(queue.first().turn() == least->turn());
        const Event e = queue.pop();
        CHECK(e.time() == least->time());
        CHECK(e.turn() == least->turn());
        expected.erase(least);
      } else {
        const Event e(static_cast<Time>(random() % 20), static_cast<std::uint32_t>(random() % 1000));
        queue.push(e);
        expected.push_back(e);
      }
      CHECK(queue.empty() == expected.empty());
    }
  }
}

TEST_CASE("fair rates: limited flows get their limit, and the others share the rest") {
  // A link of 10 with three flows: one also crosses a link of 2, and another is limited to 3.
  Flow narrow = flow({{0, 1}, {1, 1}});
  Flow modest = flow({{0, 1}}, 3);
  Flow greedy = flow({{0, 1}});
  std::vector<Flow*> flows = {&narrow, &modest, &greedy};
  share_fairly(flows, {10, 2});
  CHECK(narrow.rate == doctest::Approx(2));
  CHECK(narrow.bottleneck == 1);
  CHECK(modest.rate == doctest::Approx(3));
  CHECK(modest.bottleneck == 0xffffffffU);
  CHECK(greedy.rate == doctest::Approx(5));
  CHECK(greedy.bottleneck == 0);
  // A flow that takes two bytes of the resource per byte of its own gets the same rate, not the same share.
  Flow heavy = flow({{0, 2}});
  Flow light = flow({{0, 1}});
  flows = {&heavy, &light};
  share_fairly(flows, {9, std::numeric_limits<double>::infinity()});
  CHECK(heavy.rate == doctest::Approx(3));
  CHECK(light.rate == doctest::Approx(3));
}

TEST_CASE("routes: a link first, then the fabric that may join the nodes, rails by channel") {
  const Machine m = std::move(Machine::create(two_nodes()).value());
  CHECK(m.ranks() == 3);
  CHECK(m.route(0, 1, 0)->out[0] == 3);
  CHECK(m.route(0, 2, 0)->out[0] == 0);
  CHECK(m.route(0, 2, 1)->out[0] == 2);
  CHECK(m.route(0, 2, 2)->into[0] == 0);
  CHECK(m.route(0, 2, 0)->link_class == 1);
  CHECK_FALSE(m.route(1, 0, 0).has_value());  // the fabric is for different nodes
  CHECK_FALSE(m.route(1, 1, 0).has_value());
  CHECK_FALSE(m.route(0, 3, 0).has_value());
}

TEST_CASE("an inconsistent machine is refused") {
  const auto refused = [](auto change) {
    MachineData data = two_nodes();
    change(data);
    const auto made = Machine::create(std::move(data));
    return !made.ok() && made.error().code == ErrorCode::BadSimulation;
  };
  CHECK(refused([](MachineData& d) { d.links[0].dst = 9; }));
  CHECK(refused([](MachineData& d) { d.links[0].resources[0] = 9; }));
  CHECK(refused([](MachineData& d) { d.links[0].link_class = 9; }));
  CHECK(refused([](MachineData& d) { d.fabrics[0].link_class = 9; }));
  CHECK(refused([](MachineData& d) { d.fabrics[0].ports[0].rank = 9; }));
  CHECK(refused([](MachineData& d) { d.fabrics[0].ports[0].out[0] = 9; }));
  CHECK(refused([](MachineData& d) { d.fabrics[0].ports[0].into[0] = 9; }));
  CHECK(refused([](MachineData& d) { d.resources[0].bytes_per_s = 0; }));
  CHECK(refused([](MachineData& d) { d.resources[0].message_s = -1; }));
  CHECK(refused([](MachineData& d) { d.classes[0].latency_s = std::numeric_limits<double>::quiet_NaN(); }));
  CHECK(refused([](MachineData& d) { d.classes[0].connection_bytes_per_s = -1; }));
}

TEST_CASE("an instruction of several chunks is split into messages that fit a slot") {
  ProtocolTiming p = simple(1024, 2, 64);
  p.split = true;
  // Chunks larger than a slot: a message of one chunk each, in two slices, in every tile.
  const Tiles large = cut({2560, 4}, p, 3);
  CHECK(large.count == 3);
  CHECK(large.bytes == 1024);
  CHECK(large.rest == 512);
  const MessageCut three = large.message(0, 3);
  CHECK(three.slices == 6);
  CHECK(total(three) == 3 * 1024);
  for (std::uint32_t s = 0; s < 6; ++s) CHECK(three.slice(s).ends_message == (s % 2 == 1));
  CHECK(large.message(0, 1).slices == 2);
  // In the last tile, too, a message has one chunk.
  CHECK(large.message(2, 3).slices == 6);
  CHECK(total(large.message(2, 3)) == 3 * 512);
  // Chunks of which a slot holds two: one tile, and of five chunks two messages of two and one of one.
  const Tiles small = cut({400, 4}, p, 5);
  CHECK(small.count == 1);
  const MessageCut five = small.message(0, 5);
  CHECK(five.slices == 6);
  CHECK(five.slice(0).bytes == 400);
  CHECK(five.slice(3).bytes == 400);
  CHECK(five.slice(4).bytes == 208);
  CHECK_FALSE(five.slice(4).ends_message);
  CHECK(five.slice(5).bytes == 192);
  CHECK(total(five) == 2000);
  CHECK(small.message(0, 2).slices == 2);
}

TEST_CASE("a call is cut as the runtime does it") {
  // Slots of 1000 bytes, messages of up to three chunks: tiles of 333 / 4 * 4 = 332, whole cache lines: 320.
  const Tiles tiles = cut({1000, 4}, simple(1000, 2, 64), 3);
  CHECK(tiles.count == 4);
  CHECK(tiles.chunk_bytes(0) * 3 == 960);
  CHECK(total(tiles.message(0, 3)) == 960);
  CHECK(tiles.message(0, 3).slices == 2);
  CHECK(tiles.message(0, 3).last_slice_bytes == 480);
  CHECK(total(tiles.message(3, 1)) == 40);
  CHECK(tiles.message(3, 1).slices == 1);
  CHECK(tiles.message(3, 2).slices == 2);
  CHECK(tiles.message(3, 2).last_bytes == 16);
  CHECK(cut({0, 4}, simple(1000, 2, 64), 3).count == 0);
  const MessageCut words = cut({100, 4}, simple(1000, 3, 1), 1).message(0, 1);  // slices of whole 16-byte words
  CHECK(words.slices == 3);
  CHECK(words.last_slice_bytes == 48);
  CHECK(words.last_bytes == 4);
  CHECK(total(cut({8, 8}, simple(4, 1, 1), 1).message(0, 1)) == 8);  // one element at least
}

TEST_CASE("numbers out of range are refused") {
  const ProtocolTiming good = simple(1000, 2, 64);
  CHECK(checked(good, {}, {8, 4}).ok());
  const auto refused = [&](auto change) {
    ProtocolTiming p = good;
    Start start;
    Call call{8, 4};
    change(p, start, call);
    const Status status = checked(p, start, call);
    return !status.ok() && status.error().code == ErrorCode::BadSimulation;
  };
  CHECK(refused([](auto& p, auto&, auto&) { p.slot_bytes = 0; }));
  CHECK(refused([](auto& p, auto&, auto&) { p.slots = 0; }));
  CHECK(refused([](auto& p, auto&, auto&) { p.slices = 5000; }));
  CHECK(refused([](auto& p, auto&, auto&) { p.memory_bytes[2] = -1; }));
  CHECK(refused([](auto& p, auto&, auto&) { p.min_slice_bytes = 0; }));
  CHECK(refused([](auto& p, auto&, auto&) { p.op_s = -1; }));
  CHECK(refused([](auto& p, auto&, auto&) { p.bytes_per_s[2] = 0; }));
  CHECK(refused([](auto&, auto& s, auto&) { s.launch_s = 1e9; }));
  CHECK(refused([](auto&, auto& s, auto&) { s.delay_s = {1}; }));
  CHECK(refused([](auto&, auto& s, auto&) { s.delay_s = {1, -1}; }));
  CHECK(refused([](auto&, auto& s, auto&) { s.slowdown = {1}; }));
  CHECK(refused([](auto&, auto& s, auto&) { s.slowdown = {1, 0}; }));
  CHECK(refused([](auto&, auto&, auto& c) { c.elem_bytes = 0; }));
  CHECK(refused([](auto&, auto&, auto& c) { c.chunk_bytes = ~std::uint64_t{0}; }));
}

}  // namespace gc3::sim
