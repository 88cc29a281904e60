#include "gc3/compiler/instruction_dag.h"

#include <doctest/doctest.h>

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

TEST_CASE("instructions: a transfer is a send and a receive, local work is one instruction") {
  Traced t(2);
  t.copy(in(0), out(1));
  t.reduce(in(0, 1), out(1));
  t.copy(in(0), out(0));
  t.reduce(in(0, 1), out(0));
  const InstructionDag dag = lower(t.trace, build_chunk_dag(t.trace));
  const std::vector<Opcode> expected = {Opcode::send, Opcode::recv, Opcode::send, Opcode::recv_reduce_copy,
                                        Opcode::nop,  Opcode::copy, Opcode::nop,  Opcode::reduce};
  for (std::uint32_t n = 0; n < expected.size(); ++n) CHECK(dag.nodes[n].opcode == expected[n]);
  REQUIRE(dag.preds_of(recv_node(1)).size() == 1);
  CHECK(dag.preds_of(recv_node(1))[0] == recv_node(0));  // the sum follows the write of its operand
  CHECK(dag.preds_of(send_node(1)).empty());
}

TEST_CASE("instructions: depths count messages and edges within a rank equally, forwards and backwards") {
  Traced t(3);
  t.copy(in(0), scratch(1));          // send 0, receive 1
  t.copy(scratch(1), scratch(1, 1));  // copy 3
  t.copy(scratch(1, 1), out(2));      // send 4, receive 5
  t.copy(in(2, 1), out(0));           // send 6, receive 7
  const ChunkDag chunks = build_chunk_dag(t.trace);
  const InstructionDag dag = lower(t.trace, chunks);
  const Depths d = depths(dag);
  const std::uint32_t chain[] = {0, 1, 3, 4, 5};
  for (std::uint32_t k = 0; k < 5; ++k) {
    CHECK(d.depth[chain[k]] == k);
    CHECK(d.reverse[chain[k]] == 4 - k);
  }
  CHECK(d.depth[7] == 1);
  CHECK(d.reverse[6] == 1);
  CHECK(d.reverse[7] == 0);
}

TEST_CASE("instructions: depths are the longest paths of any trace, before and after fusion") {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const Fused f(testing::random_trace(seed, 4, 40));
    for (const InstructionDag* dag : {&f.lowered, &f.dag}) {
      const Depths d = depths(*dag);
      std::vector<std::uint32_t> expected(dag->nodes.size(), 0);
      std::vector<std::uint32_t> reverse(dag->nodes.size(), 0);
      std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
      for (std::uint32_t n = 0; n < dag->nodes.size(); ++n) {
        if (!dag->exists(n)) continue;
        for (const std::uint32_t p : dag->preds_of(n)) edges.emplace_back(p, n);
        if (dag->sends(n)) edges.emplace_back(n, recv_node(dag->nodes[n].sends));
      }
      for (bool changed = true; changed;) {
        changed = false;
        for (const auto& [from, to] : edges) {
          if (expected[to] < expected[from] + 1) expected[to] = expected[from] + 1, changed = true;
          if (reverse[from] < reverse[to] + 1) reverse[from] = reverse[to] + 1, changed = true;
        }
      }
      CHECK(d.depth == expected);
      CHECK(d.reverse == reverse);
    }
  }
}

}  // namespace
}  // namespace gc3::compiler
