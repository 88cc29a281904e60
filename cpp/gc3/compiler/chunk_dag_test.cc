#include "gc3/compiler/chunk_dag.h"

#include <doctest/doctest.h>

#include <string>

#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::in;
using testing::out;
using testing::scratch;
using testing::Traced;

// "end <- operation end, data" for each edge of an operation.
std::string edges(const ChunkDag& dag, std::size_t op) {
  const auto name = [](End end) { return end == End::source ? std::string("src") : std::string("dst"); };
  std::string text;
  for (const ChunkEdge& e : dag.edges_of(op)) {
    text += (text.empty() ? "" : "; ") + name(e.end) + " <- " + std::to_string(e.pred) + " " + name(e.pred_end) +
            (e.carries_data ? " data" : "");
  }
  return text;
}

TEST_CASE("chunk DAG: a read follows the write, a write follows the reads, or the write if there was no read") {
  Traced t(3);
  t.copy(in(0), scratch(1));     // 0
  t.copy(scratch(1), out(2));    // 1 reads it
  t.copy(in(0, 1), scratch(1));  // 2 writes it again, after the reader only
  t.copy(in(0, 2), scratch(1));  // 3 and again, after the writer
  t.reduce(in(2), scratch(1));   // 4 reads and writes it
  t.copy(in(1), out(1));         // 5 is independent of all of them
  const ChunkDag dag = build_chunk_dag(t.trace);
  CHECK(edges(dag, 0).empty());
  CHECK(edges(dag, 1) == "src <- 0 dst data");
  CHECK(edges(dag, 2) == "dst <- 1 src");
  CHECK(edges(dag, 3) == "dst <- 2 dst");
  CHECK(edges(dag, 4) == "dst <- 3 dst data");
  CHECK(edges(dag, 5).empty());
}

TEST_CASE("chunk DAG: an operation that reads several chunks written by another counts as one reader") {
  Traced t(3);
  t.reduce(in(0), scratch(1), 4);
  t.copy(scratch(1), out(2), 4);
  t.copy(scratch(1, 1), out(1), 2);
  const ChunkDag dag = build_chunk_dag(t.trace);
  CHECK(edges(dag, 1) == "src <- 0 dst data");
  CHECK(dag.readers[0] == 2);
  CHECK(dag.readers[1] == 0);
}

TEST_CASE("chunk DAG: parts of a range depend on the operations on these parts") {
  Traced t(3);
  t.copy(in(0), scratch(1), 2);
  t.copy(in(0, 2), scratch(1, 2), 2);
  t.copy(scratch(1, 1), out(2), 2);  // of both
  t.copy(scratch(1, 3), out(2, 4));  // of the second
  const ChunkDag dag = build_chunk_dag(t.trace);
  CHECK(edges(dag, 2) == "src <- 0 dst data; src <- 1 dst data");
  CHECK(edges(dag, 3) == "src <- 1 dst data");
}

TEST_CASE("chunk DAG: a reduction whose local operand is elsewhere reads it there") {
  Traced t(2);
  t.copy(in(0, 5), scratch(1, 1));
  t.copy(in(0, 6), out(1));
  t.reduce(in(0), out(1)).local = scratch(1, 1);
  t.copy(in(0, 7), scratch(1, 1));  // must wait until it has been read
  const ChunkDag dag = build_chunk_dag(t.trace);
  CHECK(edges(dag, 2) == "dst <- 0 dst data; dst <- 1 dst");
  CHECK(edges(dag, 3) == "dst <- 2 dst");
  CHECK(dag.readers[0] == 1);
}

TEST_CASE("chunk DAG: chunks of the result are counted at their location, also in place") {
  using model::CollectiveKind;
  Traced apart(2, CollectiveKind::reducescatter);
  apart.copy(in(0), out(1), 2);
  apart.copy(in(0, 2), scratch(1), 2);
  const ChunkDag dag = build_chunk_dag(apart.trace);
  CHECK(dag.live_chunks[0] == 2);
  CHECK(dag.live_chunks[1] == 0);
  // In place rank 1's output is the second block of its input.
  Traced in_place(2, CollectiveKind::reducescatter, true);
  in_place.copy(in(0), in(1), 3);
  in_place.copy(in(0, testing::kExtent), in(1, testing::kExtent), 3);
  const ChunkDag same = build_chunk_dag(in_place.trace);
  CHECK(same.live_chunks[0] == 0);
  CHECK(same.live_chunks[1] == 3);
  // Overwritten chunks are not part of it.
  Traced twice(2);
  twice.copy(in(0), out(1), 2);
  twice.copy(in(0, 4), out(1, 1));
  const ChunkDag last = build_chunk_dag(twice.trace);
  CHECK(last.live_chunks[0] == 1);
  CHECK(last.live_chunks[1] == 1);
}

}  // namespace
}  // namespace gc3::compiler
