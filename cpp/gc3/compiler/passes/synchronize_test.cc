#include "gc3/compiler/passes/synchronize.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::in;
using testing::out;
using testing::Scheduled;
using testing::scratch;
using testing::Traced;

// The steps of its rank that are known to be finished once a step is: by program order and dependencies.
class Known {
 public:
  explicit Known(const ir::Program& program) : known_(program.instructions.size()) {
    for (bool changed = true; changed;) {
      changed = false;
      for (const ir::RankProgram& rank : program.ranks) {
        for (std::uint32_t t = rank.first_tb; t < rank.first_tb + rank.tb_count; ++t) {
          const ir::Threadblock& tb = program.threadblocks[t];
          for (std::uint32_t i = tb.first_instruction; i < tb.first_instruction + tb.instruction_count; ++i) {
            const std::size_t before = known_[i].size();
            known_[i].insert(i);
            if (i > tb.first_instruction) add(i, i - 1);
            for (const ir::Dependency& d : program.deps(program.instructions[i])) add(i, step(program, rank, d));
            changed = changed || known_[i].size() != before;
          }
        }
      }
    }
  }
  static std::uint32_t step(const ir::Program& program, const ir::RankProgram& rank, const ir::Dependency& d) {
    return program.threadblocks[rank.first_tb + d.tb].first_instruction + d.step;
  }
  bool at(std::uint32_t step, std::uint32_t earlier) const { return known_[step].contains(earlier); }

 private:
  void add(std::uint32_t to, std::uint32_t from) { known_[to].insert(known_[from].begin(), known_[from].end()); }
  std::vector<std::set<std::uint32_t>> known_;
};

struct Synchronized : Scheduled {
  Synchronized(Trace given, std::uint32_t slots)
      : Scheduled(std::move(given), slots),
        program(synchronize(fused.trace, dag, channels, threadblocks, order)),
        known(program),
        step_of(dag.nodes.size()) {
    std::vector<std::uint32_t> filled(threadblocks.blocks.size(), 0);
    for (const std::uint32_t n : order.nodes) {
      step_of[n] = program.threadblocks[block_of(n)].first_instruction + filled[block_of(n)]++;
    }
  }
  const ir::Instruction& instruction(std::uint32_t node) const { return program.instructions[step_of[node]]; }

  ir::Program program;
  Known known;
  std::vector<std::uint32_t> step_of;  // of each node, among all instructions
};

TEST_CASE("synchronise: no dependency within a threadblock, and across threadblocks only those not implied otherwise") {
  // Rank 0 has three threadblocks: it receives from 1, from 2, and sends to 3.
  Traced t(4);
  t.copy(in(1), scratch(0));            // 0: received from 1
  t.reduce(in(2), scratch(0));          // 1: from 2, after it
  t.copy(scratch(0), out(3)).lane = 1;  // 2: sent, in a separate lane so that it is not fused
  t.copy(scratch(0, 1), out(3, 1)).lane = 1;
  Trace trace = std::move(t.trace);
  trace.ops[2].factor = trace.ops[3].factor = 2;
  // The last send reads two locations: the first receive wrote one, and no instruction wrote the other.
  trace.ops[3].src = scratch(0);
  const Synchronized s(std::move(trace), 2);
  REQUIRE(s.threadblocks.count(0) == 3);
  CHECK(s.instruction(recv_node(0)).dep_count == 0);
  CHECK(s.instruction(recv_node(1)).dep_count == 1);
  CHECK(s.instruction(send_node(2)).dep_count == 1);  // only the sum; it implies the write of its operand
  CHECK(s.instruction(send_node(3)).dep_count == 0);  // implied by its threadblock
  CHECK(s.instruction(recv_node(1)).has_dependents == 1);
  CHECK(s.instruction(send_node(2)).has_dependents == 0);
}

TEST_CASE("synchronise: every edge of a rank holds, and no dependency is implied by others") {
  std::size_t dependencies = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const Synchronized s(testing::random_trace(seed, 4, 10 + seed % 30), 4);
    if (!s.order.complete) continue;
    dependencies += s.program.dependencies.size();
    for (const std::uint32_t n : s.order.nodes) {
      for (const std::uint32_t p : s.dag.preds_of(n)) CHECK(s.known.at(s.step_of[n], s.step_of[p]));
    }
    std::set<std::uint32_t> awaited;
    for (const ir::RankProgram& rank : s.program.ranks) {
      for (std::uint32_t t = 0; t < rank.tb_count; ++t) {
        const ir::Threadblock& tb = s.program.threadblocks[rank.first_tb + t];
        for (std::uint32_t i = tb.first_instruction; i < tb.first_instruction + tb.instruction_count; ++i) {
          const auto deps = s.program.deps(s.program.instructions[i]);
          for (const ir::Dependency& d : deps) {
            const std::uint32_t step = Known::step(s.program, rank, d);
            awaited.insert(step);
            CHECK(d.tb != t);
            if (i > tb.first_instruction) CHECK_FALSE(s.known.at(i - 1, step));
            for (const ir::Dependency& other : deps) {
              if (!(other == d)) CHECK_FALSE(s.known.at(Known::step(s.program, rank, other), step));
            }
          }
        }
      }
    }
    for (std::uint32_t i = 0; i < s.program.instructions.size(); ++i) {
      CHECK(s.program.instructions[i].has_dependents == (awaited.contains(i) ? 1 : 0));
    }
  }
  CHECK(dependencies > 100);
}

TEST_CASE("synchronise: named scratch buffers of a rank follow each other in its scratch area, without unused places") {
  Traced t(2);
  t.trace.buffer_names.emplace_back("second");
  t.trace.extents[kScratch] = {2, 5};
  t.trace.extents.push_back({3, 4});
  const auto second = [](std::uint32_t rank, std::uint32_t index) { return Range{rank, index, kScratch + 1}; };
  t.copy(in(0), second(1, 1));
  t.copy(in(0, 1), scratch(1, 3), 2);
  t.copy(in(1), second(0, 2));
  const Synchronized s(std::move(t.trace), 2);
  CHECK(s.instruction(recv_node(0)).dst_buffer == model::Buffer::scratch);
  CHECK(s.instruction(recv_node(0)).dst_chunk == 2);
  CHECK(s.instruction(recv_node(1)).dst_chunk == 0);
  CHECK(s.instruction(recv_node(2)).dst_chunk == 0);
  CHECK(s.program.ranks[0].scratch_chunks == 1);
  CHECK(s.program.ranks[1].scratch_chunks == 3);
}

}  // namespace
}  // namespace gc3::compiler
