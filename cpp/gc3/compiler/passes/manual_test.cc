#include <doctest/doctest.h>

#include <string>

#include "gc3/compiler/schedule.h"
#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::in;
using testing::out;
using testing::Traced;

Result<ManualSchedule> place(const Traced& t) {
  return place_manually(t.trace, lower(t.trace, build_chunk_dag(t.trace)), {});
}

// Chunk `index` from rank 0 to rank 1.
ChunkOp& transfer(Traced& t, std::uint32_t index, std::int32_t send_tb, std::int32_t recv_tb,
                  std::int32_t channel = kAuto) {
  ChunkOp& op = t.copy(in(0, index), out(1, index));
  op.send_tb = send_tb;
  op.recv_tb = recv_tb;
  op.channel = channel;
  return op;
}

TEST_CASE("manual: threadblocks are numbered densely, in the order of the user's numbers") {
  Traced t(2);
  transfer(t, 0, 7, 3);
  transfer(t, 1, 2, 9);
  const ManualSchedule s = place(t).value();
  CHECK(s.threadblocks.count(0) == 2);
  CHECK(s.threadblocks.block_of[send_node(0)] == 1);
  CHECK(s.threadblocks.block_of[send_node(1)] == 0);
  CHECK(s.threadblocks.block_of[recv_node(0)] == s.threadblocks.first_of_rank[1]);
  CHECK(s.threadblocks.block_of[recv_node(1)] == s.threadblocks.first_of_rank[1] + 1);
}

TEST_CASE("manual: the user's channels are assigned first, then the lowest free ones") {
  Traced t(2);
  transfer(t, 0, 0, 0);  // written first, but must leave channel 0 to the next
  transfer(t, 1, 1, 1, 0);
  transfer(t, 2, 2, 2);
  transfer(t, 3, 3, 3, 1);
  const ManualSchedule s = place(t).value();
  const auto channel = [&](std::uint32_t op) { return s.channels.connections[s.channels.connection_of[op]].channel; };
  CHECK(channel(0) == 2);
  CHECK(channel(1) == 0);
  CHECK(channel(2) == 3);
  CHECK(channel(3) == 1);
  CHECK(s.channels.connections.size() == 4);
}

TEST_CASE("manual: threadblocks connected by transfers share one channel, whichever of them the user gave it to") {
  Traced t(3);
  transfer(t, 0, 0, 0);
  ChunkOp& onward = t.copy(in(1), out(2));
  onward.send_tb = onward.recv_tb = 0;  // rank 1's threadblock 0 receives and sends
  onward.channel = 5;
  const ManualSchedule s = place(t).value();
  for (const Connection& c : s.channels.connections) CHECK(c.channel == 5);
}

TEST_CASE("manual: each lane of a threadblock becomes a threadblock with its own channel") {
  Traced t(2);
  for (std::uint32_t lane = 0; lane < 3; ++lane) {
    ChunkOp& op = transfer(t, lane, 4, 4);
    op.lane = lane;
    op.factor = 3;
  }
  const ManualSchedule s = place(t).value();
  CHECK(s.threadblocks.count(0) == 3);
  for (std::uint32_t lane = 0; lane < 3; ++lane) {
    CHECK(s.channels.connections[s.channels.connection_of[lane]].channel == lane);
  }
}

TEST_CASE("manual: an impossible threadblock is refused with its number") {
  Traced peers(3);
  transfer(peers, 0, 4, 0);
  ChunkOp& other = peers.copy(in(0, 1), out(2, 1));
  other.send_tb = 4;
  other.recv_tb = 0;
  CHECK(place(peers).error().message == "threadblock 4 of rank 0 would have two send peers, ranks 1 and 2");
  Traced channels(2);
  transfer(channels, 0, 4, 0, 1);
  transfer(channels, 1, 4, 0, 2);
  CHECK(place(channels).error().message == "threadblock 4 of rank 0 would have two channels, 1 and 2");
  Traced shared(2);
  transfer(shared, 0, 4, 0, 1);
  transfer(shared, 1, 5, 1, 1);
  CHECK(place(shared).error().message ==
        "threadblock 5 of rank 0 would have a connection that another threadblock already uses on channel 1");
}

}  // namespace
}  // namespace gc3::compiler
