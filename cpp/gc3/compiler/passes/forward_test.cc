#include "gc3/compiler/passes/forward.h"

#include <doctest/doctest.h>

#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::in;
using testing::out;
using testing::scratch;
using testing::Traced;

TEST_CASE("forward: readers of a copy that adapts the algorithm read the input, and the copy is removed") {
  Traced t(2);
  t.copy(in(0), scratch(0), 4).adapts = true;
  t.copy(scratch(0, 1), out(1), 2);
  t.copy(scratch(0, 3), out(1, 3));
  const Trace f = forward_copies(t.trace);
  REQUIRE(f.ops.size() == 2);
  CHECK(f.ops[0].src == in(0, 1));
  CHECK(f.ops[1].src == in(0, 3));
}

TEST_CASE("forward: a copy that the user wrote stays, and so do its readers") {
  Traced t(2);
  t.copy(in(0), scratch(0), 4);
  t.copy(scratch(0), out(1), 2);
  const Trace f = forward_copies(t.trace);
  REQUIRE(f.ops.size() == 2);
  CHECK(f.ops[1].src == scratch(0));
}

TEST_CASE("forward: an input that is written is not forwarded") {
  Traced t(2, model::CollectiveKind::allreduce, true);
  t.copy(in(0), scratch(0), 2).adapts = true;
  t.copy(scratch(0), scratch(1), 2);
  t.copy(scratch(1), in(0), 2);
  const Trace f = forward_copies(t.trace);
  REQUIRE(f.ops.size() == 3);
  CHECK(f.ops[1].src == scratch(0));
}

TEST_CASE("forward: chunks that are part of the result, or needed at their location, are still copied") {
  Traced t(2);
  t.copy(in(0), out(0), 4).adapts = true;  // all of them are results
  CHECK(forward_copies(t.trace).ops[0].count == 4);
  Traced runs(2);
  runs.copy(in(0), scratch(0), 6).adapts = true;
  runs.copy(in(1), out(1));
  runs.reduce(scratch(0, 5), scratch(0, 1));  // at its location, on the rank itself
  runs.copy(scratch(0, 1), out(1), 1);
  runs.reduce(in(1), scratch(0, 4), 1).local = scratch(0, 4);
  const Trace f = forward_copies(runs.trace);
  REQUIRE(f.ops[0].adapts);
  CHECK(f.ops[0].src == in(0, 1));
  CHECK(f.ops[0].dst == scratch(0, 1));
  CHECK(f.ops[0].count == 1);
  CHECK(f.ops.size() == 5);  // one contiguous run of chunks is left
}

TEST_CASE("forward: received data and the input are reduced into the destination, without a copy") {
  Traced t(2);
  t.copy(in(1), scratch(1), 2).adapts = true;
  t.reduce(in(0), scratch(1), 2);
  const Trace f = forward_copies(t.trace);
  REQUIRE(f.ops.size() == 1);
  CHECK(f.ops[0].local == in(1));
  CHECK(f.ops[0].dst == scratch(1));
}

TEST_CASE("forward: chunks that changed since the copy are read at their location") {
  Traced t(2);
  t.copy(in(0), scratch(0), 2).adapts = true;
  t.copy(in(1), scratch(0));         // overwrites the first of them
  t.copy(scratch(0), out(1), 2);     // reads one of each
  t.copy(scratch(0, 1), out(1, 2));  // reads the second, still unchanged
  const Trace f = forward_copies(t.trace);
  REQUIRE(f.ops.size() == 4);
  CHECK(f.ops[0].src == in(0, 1));  // the third operation needs the second at its location
  CHECK(f.ops[0].count == 1);
  CHECK(f.ops[2].src == scratch(0));
  CHECK(f.ops[3].src == in(0, 1));
}

}  // namespace
}  // namespace gc3::compiler
