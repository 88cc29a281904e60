#include "gc3/compiler/passes/channels.h"

#include <doctest/doctest.h>

#include <set>
#include <tuple>

#include "gc3/compiler/passes/fuse.h"
#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::Fused;
using testing::in;
using testing::out;
using testing::scratch;
using testing::Traced;

struct Assigned {
  explicit Assigned(Trace given) : fused(std::move(given)) {
    auto result = assign_channels(fused.trace, fused.fusions);
    REQUIRE(result.ok());
    channels = std::move(result.value());
  }
  const Connection& connection(std::uint32_t op) const { return channels.connections[channels.connection_of[op]]; }
  std::uint32_t channel(std::uint32_t op) const { return connection(op).channel; }

  Fused fused;
  Channels channels;
};

TEST_CASE("channels: all hops of a chain have the lowest channel, and name the connections before and after them") {
  Traced t(4);
  t.copy(in(0), scratch(1));
  t.copy(scratch(1), scratch(2));
  t.copy(scratch(2), out(3));
  const Assigned a(std::move(t.trace));
  CHECK(a.channels.fusions.size() == 2);
  for (std::uint32_t op = 0; op < 3; ++op) CHECK(a.channel(op) == 0);
  CHECK(a.connection(0).fed_by == kNone);
  CHECK(a.connection(0).feeds == a.channels.connection_of[1]);
  CHECK(a.connection(1).fed_by == a.channels.connection_of[0]);
  CHECK(a.connection(1).feeds == a.channels.connection_of[2]);
  CHECK(a.connection(2).fed_by == a.channels.connection_of[1]);
  CHECK(a.connection(2).feeds == kNone);
}

TEST_CASE("channels: a connection does not get forwarded data from two peers on one channel") {
  Traced t(4);
  t.copy(in(0), scratch(1, 0));
  t.copy(scratch(1, 0), out(3, 0));  // rank 0's data over rank 1 to rank 3
  t.copy(in(2), scratch(1, 1));
  t.copy(scratch(1, 1), out(3, 1));  // and rank 2's
  const Assigned a(std::move(t.trace));
  CHECK(a.channels.fusions.size() == 2);
  CHECK(a.channel(0) == 0);
  CHECK(a.channel(1) == 0);
  CHECK(a.channel(2) == 1);
  CHECK(a.channel(3) == 1);
  CHECK(a.connection(1).fed_by == a.channels.connection_of[0]);
  CHECK(a.connection(3).fed_by == a.channels.connection_of[2]);
  CHECK(a.channels.connections.size() == 4);  // a failed attempt leaves nothing
}

TEST_CASE("channels: a connection does not forward data to two peers on one channel") {
  Traced t(4);
  t.copy(in(0, 0), scratch(1, 0));
  t.copy(scratch(1, 0), out(2, 0));
  t.copy(in(0, 1), scratch(1, 1));
  t.copy(scratch(1, 1), out(3, 1));
  const Assigned a(std::move(t.trace));
  CHECK(a.channels.fusions.size() == 2);
  CHECK(a.channel(0) == a.channel(1));
  CHECK(a.channel(2) == a.channel(3));
  CHECK(a.channel(0) != a.channel(2));
}

TEST_CASE("channels: a failed attempt takes no channel from later chains") {
  // The third chain needs 0 -> 1 -> 2 on a channel where 0 -> 1 forwards to rank 3. The attempt is undone and it takes
  // the next channel.
  Traced t(5);
  t.copy(in(0, 0), scratch(1, 0));
  t.copy(scratch(1, 0), scratch(2, 0));
  t.copy(scratch(2, 0), out(3, 0));
  t.copy(in(4, 1), scratch(1, 1));
  t.copy(scratch(1, 1), scratch(2, 1));  // 4 -> 1 is free on channel 0, but 1 -> 2 forwards from rank 0 there
  t.copy(scratch(2, 1), out(3, 1));
  t.copy(in(4, 2), scratch(1, 2));
  t.copy(scratch(1, 2), out(0, 2));  // so 4 -> 1 may forward to rank 0 on channel 0
  const Assigned a(std::move(t.trace));
  CHECK(a.channel(0) == 0);
  CHECK(a.channel(3) == 1);
  CHECK(a.channel(6) == 0);
  CHECK(a.channel(7) == 0);
}

TEST_CASE("channels: the user's channels are kept, and a fusion across two of them is dropped") {
  const auto assigned = [](std::int32_t first, std::int32_t second) {
    Traced t(3);
    t.copy(in(0), scratch(1)).channel = first;
    t.copy(scratch(1), out(2)).channel = second;
    return Assigned(std::move(t.trace));
  };
  const Assigned both = assigned(5, 5);
  CHECK(both.channels.fusions.size() == 1);
  CHECK(both.channel(0) == 5);
  const Assigned first = assigned(3, kAuto);
  CHECK(first.channels.fusions.size() == 1);
  CHECK(first.channel(1) == 3);
  const Assigned second = assigned(kAuto, 4);
  CHECK(second.channels.fusions.size() == 1);
  CHECK(second.channel(0) == 4);
  const Assigned differ = assigned(1, 2);
  CHECK(differ.channels.fusions.empty());
  CHECK(differ.channel(0) == 1);
  CHECK(differ.channel(1) == 2);
}

TEST_CASE("channels: a chain of three hops is cut where the user gives a second channel, and the rest uses it") {
  Traced t(5);
  t.copy(in(0), scratch(1)).channel = 1;
  t.copy(scratch(1), scratch(2));
  t.copy(scratch(2), scratch(3)).channel = 2;
  t.copy(scratch(3), out(4));
  const Assigned a(std::move(t.trace));
  CHECK(a.channel(0) == 1);
  CHECK(a.channel(1) == 1);
  CHECK(a.channel(2) == 2);
  CHECK(a.channel(3) == 2);
  CHECK(a.channels.fusions.size() == 2);
}

TEST_CASE("channels: a chain is cut where it does not fit the user's channel") {
  Traced t(4);
  for (std::uint32_t i = 0; i < 2; ++i) {
    t.copy(in(0, i), scratch(1, i)).channel = 0;
    t.copy(scratch(1, i), out(2 + i, i)).channel = 0;  // 0 -> 1 would have to forward to both 2 and 3
  }
  const Assigned a(std::move(t.trace));
  for (std::uint32_t op = 0; op < 4; ++op) CHECK(a.channel(op) == 0);
  REQUIRE(a.channels.fusions.size() == 1);
  CHECK(a.channels.fusions[0].recv_op == 0);
}

TEST_CASE("channels: lanes never share a channel, and lane 0 keeps the user's") {
  Traced t(2);
  for (std::uint32_t lane = 0; lane < 3; ++lane) {
    ChunkOp& op = t.copy(in(0, lane), out(1, lane));
    op.lane = lane;
    op.factor = 3;
    op.channel = 7;
  }
  t.copy(in(0, 3), out(1, 3)).channel = 2;
  const Assigned a(std::move(t.trace));
  CHECK(a.channel(0) == 7);
  CHECK(a.channel(3) == 2);
  CHECK(a.channel(1) == 8);
  CHECK(a.channel(2) == 9);
}

TEST_CASE("channels: a threadblock forwards from one peer to one peer in every trace") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const Assigned a(testing::random_trace(seed, 5, 60));
    const auto& connections = a.channels.connections;
    std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> names;
    for (const Connection& c : connections) names.insert({c.sender, c.receiver, c.channel});
    CHECK(names.size() == connections.size());
    for (const Fusion& f : a.channels.fusions) {
      const std::uint32_t in_c = a.channels.connection_of[f.recv_op];
      const std::uint32_t out_c = a.channels.connection_of[f.send_op];
      CHECK(connections[in_c].channel == connections[out_c].channel);
      CHECK(connections[in_c].feeds == out_c);
      CHECK(connections[out_c].fed_by == in_c);
    }
    for (std::uint32_t op = 0; op < a.fused.trace.ops.size(); ++op) {
      const ChunkOp& o = a.fused.trace.ops[op];
      REQUIRE((a.channels.connection_of[op] != kNone) == o.remote());
      if (!o.remote()) continue;
      CHECK(a.connection(op).sender == o.src.rank);
      CHECK(a.connection(op).receiver == o.dst.rank);
    }
  }
}

}  // namespace
}  // namespace gc3::compiler
