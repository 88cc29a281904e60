#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "gc3/compiler/schedule.h"
#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::in;
using testing::out;
using testing::Scheduled;
using testing::scratch;
using testing::Traced;

TEST_CASE("order: among ready instructions, the one before the longest path comes first") {
  Traced t(5);
  t.copy(in(0), out(1));           // 0: nothing follows
  t.copy(in(0, 1), scratch(2));    // 1: over ranks 2 and 3 to 4
  t.copy(scratch(2), scratch(3));  // 2
  t.copy(scratch(3), out(4));      // 3
  const Scheduled s(std::move(t.trace), 2);
  REQUIRE(s.order.complete);
  CHECK(s.order.nodes.front() == send_node(1));
  CHECK(s.place(send_node(1)) < s.place(send_node(0)));
}

TEST_CASE("order: depth decides before the length of the path that follows") {
  Traced t(4);
  t.copy(in(0), scratch(1));       // 0
  t.copy(scratch(1), scratch(2));  // 1: one deeper, but before a longer path
  t.copy(scratch(2), scratch(3));  // 2
  t.copy(scratch(3), out(0));      // 3
  t.copy(in(1), out(1));           // 4: without predecessors or successors
  const Scheduled s(std::move(t.trace), 2);
  REQUIRE(s.order.complete);
  CHECK(s.place(recv_node(4)) < s.place(recv_node(0)));
}

TEST_CASE("order: steps decide before depth and the length of the path that follows") {
  Traced t(3);
  t.copy(in(0), scratch(1));            // 0: before a longer path
  t.copy(scratch(1), scratch(2));       // 1
  t.copy(in(0, 1), out(1)).step = 1;    // 2
  t.copy(scratch(2), out(2)).step = 1;  // 3
  t.copy(in(0, 2), out(1, 1));          // 4: written last, of the first step
  const Scheduled s(std::move(t.trace), 2);
  REQUIRE(s.order.complete);
  CHECK(s.place(recv_node(0)) < s.place(send_node(2)));  // fused with the send of 1
  CHECK(s.place(send_node(4)) < s.place(send_node(2)));
  CHECK(s.place(recv_node(4)) < s.place(recv_node(2)));
}

TEST_CASE("order: an operation that others wait for comes first, and messages move between operations") {
  Traced t(2);
  const auto apply = [&](const Range& read, const Range& write) {
    t.copy(read, write).kind = OpKind::apply;
    t.trace.ops.back().applied = static_cast<std::uint32_t>(t.trace.applied.size());
    t.trace.applied.push_back({0, {read}, {write}});
  };
  apply(in(0, 0), out(0, 0));  // 0: nothing follows
  for (std::uint32_t i = 1; i < 4; ++i) {
    apply(in(0, i), scratch(0, i));    // 1, 3, 5
    t.copy(scratch(0, i), out(1, i));  // 2, 4, 6
  }
  const Scheduled s(std::move(t.trace), 2);
  REQUIRE(s.order.complete);
  REQUIRE(s.threadblocks.count(0) == 2);
  CHECK(s.block_of(recv_node(1)) != s.block_of(send_node(2)));
  for (const std::uint32_t op : {0U, 3U, 5U}) CHECK(s.block_of(recv_node(op)) == s.block_of(recv_node(1)));
  CHECK(s.place(recv_node(1)) < s.place(send_node(2)));
  CHECK(s.place(send_node(2)) < s.place(recv_node(3)));
  CHECK(s.place(send_node(4)) < s.place(recv_node(5)));
  CHECK(s.place(recv_node(5)) < s.place(recv_node(0)));
}

TEST_CASE("order: a tile is finished and sent before the next one is begun") {
  Traced t(2);
  const auto apply = [&](const Range& read, const Range& write) {
    t.copy(read, write).kind = OpKind::apply;
    t.trace.ops.back().applied = static_cast<std::uint32_t>(t.trace.applied.size());
    t.trace.applied.push_back({0, {read}, {write}});
  };
  for (std::uint32_t i = 0; i < 3; ++i) {
    apply(in(0, i), scratch(0, 2 * i));               // 0, 3, 6
    apply(scratch(0, 2 * i), scratch(0, 2 * i + 1));  // 1, 4, 7
    t.copy(scratch(0, 2 * i + 1), out(1, i));         // 2, 5, 8
  }
  const Scheduled s(std::move(t.trace), 3);
  REQUIRE(s.order.complete);
  CHECK(s.place(recv_node(1)) < s.place(recv_node(3)));
  CHECK(s.place(send_node(2)) < s.place(recv_node(4)));
  CHECK(s.place(recv_node(4)) < s.place(recv_node(6)));
}

TEST_CASE("order: a receive that was ready too early is woken when its message reaches the front") {
  Traced t(2);
  t.copy(in(1), scratch(1, 5));
  t.copy(scratch(1, 5), scratch(1, 6));
  t.copy(scratch(1, 6), scratch(1, 0));
  t.copy(in(0, 0), scratch(1, 0));  // 3: is sent first, but has to wait for the copies
  t.copy(in(0, 1), out(1, 1));      // 4: could be received at once
  for (std::uint32_t slots = 2; slots < 4; ++slots) {
    const Scheduled s(t.trace, slots);
    CHECK(s.order.complete);
    CHECK(s.place(send_node(3)) < s.place(send_node(4)));
    CHECK(s.place(recv_node(3)) < s.place(recv_node(4)));
  }
}

TEST_CASE("order: local work goes to the threadblock of its rank whose last instruction is the earliest") {
  Traced t(3);
  t.copy(in(0, 0), out(1, 0));
  t.copy(in(0, 1), out(2, 1));
  for (std::uint32_t i = 0; i < 4; ++i) t.copy(in(0, i), out(0, i));
  const Scheduled s(std::move(t.trace), 2);
  REQUIRE(s.threadblocks.count(0) == 2);
  std::map<std::uint32_t, int> copies;
  for (std::uint32_t op = 2; op < 6; ++op) ++copies[s.block_of(recv_node(op))];
  CHECK(copies.size() == 2);
  for (const auto& [block, count] : copies) CHECK(count == 2);
}

TEST_CASE("order: a local sum of many terms stays in one threadblock") {
  Traced t(3);
  t.copy(in(0, 0), out(1, 0));
  t.copy(in(0, 1), out(2, 1));
  t.copy(in(0, 0), out(0));
  for (std::uint32_t i = 1; i < 6; ++i) t.reduce(in(0, i), out(0));
  const Scheduled s(std::move(t.trace), 2);
  REQUIRE(s.threadblocks.count(0) == 2);
  for (std::uint32_t op = 3; op < 8; ++op) CHECK(s.block_of(recv_node(op)) == s.block_of(recv_node(2)));
}

// Every rank forwards the message of the rank before it: with one slot all of them wait for each other.
Traced ring() {
  Traced t(3);
  for (std::uint32_t r = 0; r < 3; ++r) t.copy(in(r), scratch((r + 1) % 3));
  for (std::uint32_t r = 0; r < 3; ++r) t.copy(scratch((r + 1) % 3), out((r + 2) % 3));
  return t;
}

TEST_CASE("order: if fused instructions wait for each other, only they are reported, and no plain send") {
  Traced t = ring();
  t.copy(in(0, 1), out(1, 1));  // a plain send that waits behind them
  const Scheduled one(t.trace, 1);
  CHECK_FALSE(one.order.complete);
  CHECK(one.order.stuck == std::vector<std::uint32_t>{0, 1, 2});
  const Scheduled two(t.trace, 2);
  CHECK(two.order.complete);
  CHECK(two.order.stuck.empty());
}

TEST_CASE("order: the trace's own order is complete without fusion, one message at a time") {
  Traced t = ring();
  const testing::Fused f(std::move(t.trace));
  const Channels channels = assign_channels(f.trace, {}).value();
  const Threadblocks threadblocks = assign_threadblocks(f.trace, f.lowered, channels, 0).value();
  const Order order = trace_order(f.trace, f.lowered, threadblocks);
  CHECK(order.complete);
  CHECK(std::ranges::is_sorted(order.nodes));
  CHECK(order.nodes.size() == 12);
}

TEST_CASE(
    "order: it respects every edge, receives in the order of sending, and keeps to the slots of each connection") {
  int complete = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const std::uint32_t slots = 1 + seed % 3;
    const Scheduled s(testing::random_trace(seed, 4, 5 + seed % 30), slots);
    std::vector<bool> done(s.dag.nodes.size(), false);
    std::vector<std::vector<std::uint32_t>> fifo(s.channels.connections.size());
    for (const std::uint32_t n : s.order.nodes) {
      CHECK_FALSE(done[n]);
      for (const std::uint32_t p : s.dag.preds_of(n)) CHECK(done[p]);
      done[n] = true;
      if (s.dag.receives(n)) {
        std::vector<std::uint32_t>& messages = fifo[s.channels.connection_of[op_of(n)]];
        REQUIRE_FALSE(messages.empty());
        CHECK(messages.front() == op_of(n));
        messages.erase(messages.begin());
      }
      if (s.dag.sends(n)) {
        const std::uint32_t op = s.dag.nodes[n].sends;
        std::vector<std::uint32_t>& messages = fifo[s.channels.connection_of[op]];
        messages.push_back(op);
        CHECK(messages.size() <= slots);
      }
      CHECK(s.threadblocks.blocks[s.block_of(n)].rank == rank_of(s.trace(), n));
    }
    std::size_t nodes = 0;
    for (std::uint32_t n = 0; n < s.dag.nodes.size(); ++n) nodes += s.dag.exists(n) ? 1 : 0;
    CHECK(s.order.complete == (s.order.nodes.size() == nodes));
    complete += s.order.complete ? 1 : 0;
    for (const std::uint32_t op : s.order.stuck) {
      CHECK(s.dag.sends(recv_node(op)));
      CHECK_FALSE(done[recv_node(op)]);
    }
  }
  CHECK(complete > 200);
}

}  // namespace
}  // namespace gc3::compiler
