#include "gc3/compiler/passes/reuse_scratch.h"

#include <doctest/doctest.h>

#include "gc3/compiler/chunk_dag.h"
#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::in;
using testing::out;
using testing::scratch;
using testing::Traced;

// Rank 1 forwards three chunks, one after the other.
Trace forwarding() {
  Traced t(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    t.copy(in(0, i), scratch(1, 2 * i));
    t.copy(scratch(1, 2 * i), out(2, i));
  }
  return t.trace;
}

TEST_CASE("reuse: a place is used again after its last reader, and its writer waits for that reader") {
  const Trace r = reuse_scratch(forwarding(), 0);
  CHECK(r.extents[kScratch][1] == 1);
  CHECK(r.extents[kScratch][0] == 0);
  for (std::size_t i = 0; i < r.ops.size(); i += 2) {
    CHECK(r.ops[i].dst == scratch(1, 0));
    CHECK(r.ops[i].local == scratch(1, 0));
    CHECK(r.ops[i + 1].src == scratch(1, 0));
    CHECK(r.ops[i + 1].dst == out(2, static_cast<std::uint32_t>(i / 2)));
  }
  const ChunkDag dag = build_chunk_dag(r);
  REQUIRE(dag.edges_of(2).size() == 1);
  CHECK(dag.edges_of(2)[0].pred == 1);
  CHECK(!dag.edges_of(2)[0].carries_data);
}

TEST_CASE("reuse: not while there are enough places; then the one that was used longest ago") {
  CHECK(build_chunk_dag(reuse_scratch(forwarding(), 3)).edges_of(4).empty());
  const Trace r = reuse_scratch(forwarding(), 2);
  CHECK(r.extents[kScratch][1] == 2);
  CHECK(r.ops[2].dst == scratch(1, 1));
  CHECK(r.ops[4].dst == scratch(1, 0));
}

TEST_CASE("reuse: data that one operation uses stays adjacent, also if several operations wrote it") {
  Traced t(3);
  t.copy(in(0), scratch(1, 5));
  t.copy(scratch(1, 5), out(2));
  t.copy(in(0, 1), scratch(1, 3));
  t.copy(in(0, 2), scratch(1, 2));
  t.copy(scratch(1, 2), out(2, 1), 2);
  const Trace r = reuse_scratch(t.trace, 0);
  CHECK(r.extents[kScratch][1] == 2);
  CHECK(r.ops[2].dst == scratch(1, 1));
  CHECK(r.ops[3].dst == scratch(1, 0));
  CHECK(r.ops[4].src == scratch(1, 0));
}

TEST_CASE("reuse: an operation does not write what it reads") {
  Traced t(2);
  t.copy(in(0), scratch(1));
  t.copy(scratch(1), scratch(1, 7));
  t.copy(scratch(1, 7), out(0));
  const Trace r = reuse_scratch(t.trace, 0);
  CHECK(r.extents[kScratch][1] == 2);
  CHECK(r.ops[1].src != r.ops[1].dst);
  CHECK(r.ops[2].src == r.ops[1].dst);
}

TEST_CASE("reuse: a sum in its own place keeps it, one with a term elsewhere is new data") {
  Traced t(2);
  t.copy(in(1), scratch(1, 4));
  t.reduce(in(0), scratch(1, 4));
  t.copy(scratch(1, 4), out(0));
  t.reduce(in(0, 1), scratch(1, 6)).local = in(1, 1);
  t.copy(scratch(1, 6), out(0, 1));
  const Trace r = reuse_scratch(t.trace, 0);
  CHECK(r.extents[kScratch][1] == 1);
  CHECK(r.ops[1].local == r.ops[1].dst);
  CHECK(r.ops[3].local == in(1, 1));
  CHECK(r.ops[3].dst == scratch(1, 0));
}

TEST_CASE("reuse: where places of different length leave gaps, the tightest ones are taken if that needs less") {
  Traced t(2);
  t.copy(in(0), scratch(1, 0), 3);   // places 0 to 2
  t.copy(in(0), scratch(1, 3));      // 3, which stays in use
  t.copy(in(0), scratch(1, 4));      // 4
  t.copy(scratch(1, 0), out(0), 3);  // frees 0 to 2
  t.copy(scratch(1, 4), out(0));     // frees 4
  t.copy(in(0), scratch(1, 5));      // fits into 4, and so leaves 0 to 2
  t.copy(in(0), scratch(1, 0), 3);
  t.copy(scratch(1, 5), out(0));
  t.copy(scratch(1, 0), out(0), 3);
  t.copy(scratch(1, 3), out(0));
  CHECK(reuse_scratch(t.trace, 0).extents[kScratch][1] == 5);
}

TEST_CASE("reuse: a program whose threadblocks the user assigned stays as it is") {
  Trace manual = forwarding();
  for (ChunkOp& op : manual.ops) op.send_tb = op.recv_tb = 0;
  CHECK(to_text(reuse_scratch(manual, 0)) == to_text(manual));
}

}  // namespace
}  // namespace gc3::compiler
