#include "gc3/compiler/passes/fuse.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using ir::Opcode;
using testing::Fused;
using testing::in;
using testing::out;
using testing::scratch;
using testing::Traced;

TEST_CASE("fuse: if several sends follow a receive, the one on the longest path is fused") {
  for (const bool long_first : {true, false}) {
    Traced t(5);
    t.copy(in(0), scratch(1));
    if (!long_first) t.copy(scratch(1), out(2));
    t.copy(scratch(1), scratch(3));
    if (long_first) t.copy(scratch(1), out(2));
    t.copy(scratch(3), out(4));  // so the path over rank 3 is the longer one
    const Fused f(std::move(t.trace));
    const std::uint32_t over_3 = long_first ? 1 : 2;
    CHECK(f.fused_into(0) == over_3);
    CHECK(f.fused_into(over_3) == 3);
    CHECK(f.fusions.size() == 2);
    CHECK(f.opcode(recv_node(0)) == Opcode::recv_copy_send);
    CHECK(f.opcode(recv_node(over_3)) == Opcode::recv_copy_send);
    CHECK_FALSE(f.dag.exists(send_node(over_3)));
    CHECK(f.opcode(send_node(3 - over_3)) == Opcode::send);  // the short path has a separate send
  }
}

TEST_CASE("fuse: of equally long paths the first is fused") {
  Traced t(4);
  t.copy(in(0), scratch(1));
  t.copy(scratch(1), out(2));
  t.copy(scratch(1), out(3));
  CHECK(Fused(std::move(t.trace)).fused_into(0) == 1);
}

TEST_CASE("fuse: a sum is stored if another operation than the send reads it, or if it is a result") {
  const auto opcode = [](const Range& place, bool read_again) {
    Traced t(3);
    t.reduce(in(0), place);
    t.copy(place, out(2, 1));
    if (read_again) t.copy(place, out(1, 1));
    return Fused(std::move(t.trace)).opcode(recv_node(0));
  };
  CHECK(opcode(scratch(1), false) == Opcode::recv_reduce_send);
  CHECK(opcode(scratch(1), true) == Opcode::recv_reduce_copy_send);
  CHECK(opcode(out(1), false) == Opcode::recv_reduce_copy_send);
}

TEST_CASE("fuse: only a send of exactly the received chunks, in the same lane, channel and threadblock") {
  const auto fused = [](auto change) {
    Traced t(3);
    t.copy(in(0), scratch(1), 2);
    t.copy(scratch(1), out(2), 2);
    change(t.trace);
    return Fused(std::move(t.trace)).fusions.size() == 1;
  };
  CHECK(fused([](Trace&) {}));
  CHECK_FALSE(fused([](Trace& t) { t.ops[1].count = 1; }));
  CHECK_FALSE(fused([](Trace& t) { t.ops[1].src.index = 1; }));
  CHECK_FALSE(fused([](Trace& t) { t.ops[1].lane = 1; }));
  CHECK_FALSE(fused([](Trace& t) { t.ops[1].factor = 2; }));
  CHECK_FALSE(fused([](Trace& t) { t.ops[0].channel = 0, t.ops[1].channel = 1; }));
  CHECK(fused([](Trace& t) { t.ops[0].channel = 1; }));  // the compiler may choose the same channel for the other one
  CHECK(fused([](Trace& t) { t.ops[1].channel = 1; }));
  CHECK(fused([](Trace& t) { t.ops[0].recv_tb = t.ops[1].send_tb = 3; }));
  CHECK_FALSE(fused([](Trace& t) { t.ops[0].recv_tb = 2, t.ops[1].send_tb = 3; }));
  CHECK_FALSE(fused([](Trace& t) { t.ops[0].src = in(1); }));   // a local copy receives nothing
  CHECK_FALSE(fused([](Trace& t) { t.ops[1].dst = out(1); }));  // and sends nothing
}

TEST_CASE("fuse: a send of chunks that two operations wrote is not fused, although the last one wrote all of them") {
  Traced parts(3);
  parts.copy(in(0), scratch(1), 2);
  parts.copy(in(0, 4), scratch(1, 1));
  parts.copy(scratch(1), out(2), 2);
  CHECK(Fused(std::move(parts.trace)).fusions.empty());
  Traced whole(3);
  whole.copy(in(0), scratch(1), 2);
  whole.copy(in(0, 4), scratch(1), 2);
  whole.copy(scratch(1), out(2), 2);
  const Fused f(std::move(whole.trace));
  CHECK(f.fused_into(0) == kNone);
  CHECK(f.fused_into(1) == 2);
}

TEST_CASE("fuse: an instruction that waited for a fused send waits for the receive that contains it") {
  Traced t(3);
  t.copy(in(0), scratch(1));     // 0: received and, by 1, sent on
  t.copy(scratch(1), out(2));    // 1
  t.copy(in(0, 1), scratch(1));  // 2: reuses the location
  const Fused f(std::move(t.trace));
  REQUIRE(f.fused_into(0) == 1);
  const auto preds = f.dag.preds_of(recv_node(2));
  CHECK(std::ranges::count(preds, send_node(1)) == 0);
  CHECK(std::ranges::count(preds, recv_node(0)) == 1);
}

TEST_CASE("fuse: node numbers remain a topological order, and no message is lost") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const Fused f(testing::random_trace(seed, 4, 40));
    std::vector<std::uint32_t> sent(f.trace.ops.size(), 0);
    for (std::uint32_t n = 0; n < f.dag.nodes.size(); ++n) {
      if (!f.dag.exists(n)) continue;
      for (const std::uint32_t p : f.dag.preds_of(n)) {
        CHECK(p < n);
        CHECK(f.dag.exists(p));
        CHECK(rank_of(f.trace, p) == rank_of(f.trace, n));
      }
      if (f.dag.sends(n)) ++sent[f.dag.nodes[n].sends];
      CHECK(f.dag.sends(n) == ir::info(f.opcode(n)).sends);
    }
    for (std::uint32_t i = 0; i < sent.size(); ++i) CHECK(sent[i] == (f.trace.ops[i].remote() ? 1 : 0));
  }
}

}  // namespace
}  // namespace gc3::compiler
