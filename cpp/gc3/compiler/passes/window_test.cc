#include "gc3/compiler/passes/window.h"

#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "gc3/compiler/pipeline.h"
#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::in;
using testing::out;
using testing::Traced;

// Every rank sends to all others, the next one first.
Trace everyone(std::uint32_t ranks) {
  Traced t(ranks);
  for (std::uint32_t step = 1; step < ranks; ++step) {
    for (std::uint32_t r = 0; r < ranks; ++r) t.copy(in(r, step), out((r + step) % ranks, step));
  }
  return std::move(t.trace);
}

ir::Program windowed(const Trace& trace, std::uint32_t window) {
  Options options;
  options.window = window;
  return compile(trace, options).value();
}

TEST_CASE("window: threadblocks are numbered as their ranks use them") {
  const ir::Program program = windowed(everyone(5), 100);
  for (std::uint32_t r = 0; r < 5; ++r) {
    std::vector<std::uint32_t> peers;
    for (const ir::Threadblock& tb : program.tbs(r)) {
      if (tb.send_peer != ir::kNoRank) peers.push_back((tb.send_peer + 5 - r) % 5);
      CHECK(tb.instruction_count == 1);
    }
    CHECK(peers == std::vector<std::uint32_t>{1, 2, 3, 4});
  }
  CHECK(program.dependencies.empty());  // one window
}

TEST_CASE("window: the messages of a window wait for all of the one before, and for nothing else") {
  for (const std::uint32_t window : {1U, 2U, 3U}) {
    const ir::Program program = windowed(everyone(6), window);
    const std::uint32_t windows = (5 + window - 1) / window;
    for (std::uint32_t r = 0; r < 6; ++r) {
      const auto tbs = program.tbs(r);
      const auto nops = program.steps(tbs.back());
      REQUIRE(nops.size() == windows - 1);
      CHECK(tbs.back().send_peer == ir::kNoRank);
      std::vector<std::set<std::uint32_t>> awaited;
      for (const ir::Instruction& nop : nops) {
        CHECK(nop.opcode == ir::Opcode::nop);
        CHECK(nop.has_dependents == 1);
        awaited.emplace_back();
        for (const ir::Dependency& d : program.deps(nop)) awaited.back().insert(d.tb);
        CHECK(awaited.back().size() == 2 * window);
      }
      for (std::uint32_t t = 0; t + 1 < tbs.size(); ++t) {
        const ir::Instruction& only = program.steps(tbs[t])[0];
        const auto deps = program.deps(only);
        const bool receives = tbs[t].send_peer == ir::kNoRank;
        const std::uint32_t distance = receives ? (r + 6 - tbs[t].recv_peer) % 6 : (tbs[t].send_peer + 6 - r) % 6;
        const std::uint32_t own = (distance - 1) / window;
        CHECK(deps.size() == (own == 0 ? 0 : 1));
        if (own != 0) CHECK(deps[0] == ir::Dependency{static_cast<std::uint32_t>(tbs.size() - 1), own - 1});
        CHECK(only.has_dependents == (own + 1 == windows ? 0 : 1));
        if (own + 1 != windows) CHECK(awaited[own].contains(t));
      }
    }
  }
}

TEST_CASE("window: a receive is not fused, and no window of random programs has more than its messages") {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const std::uint32_t window = 1 + seed % 4;
    const ir::Program program = windowed(testing::random_trace(seed, 4, 30), window);
    for (std::uint32_t r = 0; r < 4; ++r) {
      const auto tbs = program.tbs(r);
      const bool waits = tbs.back().send_peer == ir::kNoRank && tbs.back().recv_peer == ir::kNoRank &&
                         program.steps(tbs.back())[0].opcode == ir::Opcode::nop;
      const std::uint32_t gate = waits ? static_cast<std::uint32_t>(tbs.size() - 1) : kNone;
      std::vector<std::uint32_t> sends(40, 0);
      std::vector<std::uint32_t> receives(40, 0);
      for (std::uint32_t t = 0; t < tbs.size(); ++t) {
        std::uint32_t own = 0;
        for (const ir::Instruction& i : program.steps(tbs[t])) {
          for (const ir::Dependency& d : program.deps(i)) own = d.tb == gate ? d.step + 1 : own;
          CHECK_FALSE((ir::info(i.opcode).sends && ir::info(i.opcode).receives));
          sends[own] += std::uint32_t{ir::info(i.opcode).sends};
          receives[own] += std::uint32_t{ir::info(i.opcode).receives};
        }
      }
      CHECK(std::ranges::max(sends) <= window);
      CHECK(std::ranges::max(receives) <= window);
    }
  }
}

TEST_CASE("window: the threadblock that waits counts, and a user's own numbers stay") {
  Options options{1, 2, 8};
  options.window = 1;
  CHECK(compile(everyone(5), options).ok());  // 4 or more that send, 4 that receive, joined to 7 at most
  options.max_threadblocks = 3;
  CHECK_FALSE(compile(everyone(5), options).ok());
  Traced manual(2);
  for (std::uint32_t i = 0; i < 2; ++i) {
    ChunkOp& op = manual.copy(in(0, i), out(1, i));
    op.send_tb = static_cast<std::int32_t>(1 - i);
    op.recv_tb = static_cast<std::int32_t>(1 - i);
    op.channel = static_cast<std::int32_t>(i);
  }
  const ir::Program placed = windowed(manual.trace, 1);
  CHECK(placed.tbs(0)[0].channel == 1);
  CHECK(placed.tbs(0)[1].channel == 0);
  CHECK(placed.tbs(0).size() == 3);
}

}  // namespace
}  // namespace gc3::compiler
