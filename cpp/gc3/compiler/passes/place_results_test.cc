#include "gc3/compiler/passes/place_results.h"

#include <doctest/doctest.h>

#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::in;
using testing::kExtent;
using testing::out;
using testing::scratch;
using testing::Traced;

TEST_CASE("results: a result that is computed in scratch and copied to the output is computed in the output") {
  Traced t(2);
  t.copy(in(0), scratch(1, 2), 2);
  t.reduce(in(0, 4), scratch(1, 3));
  t.copy(scratch(1, 3), out(0));
  t.copy(scratch(1, 2), out(1, 5), 2).adapts = true;
  const Trace p = place_results(t.trace);
  REQUIRE(p.ops.size() == 3);
  CHECK(p.ops[0].dst == out(1, 5));
  CHECK(p.ops[1].dst == out(1, 6));
  CHECK(p.ops[1].local == out(1, 6));
  CHECK(p.ops[2].src == out(1, 6));
  CHECK(p.extents[kScratch][1] == 0);        // nothing is left there
  CHECK(p.extents[kScratch][0] == kExtent);  // another rank's program is unchanged
}

TEST_CASE("results: the used part of scratch is kept") {
  Traced t(2);
  t.copy(in(0), scratch(1, 0));
  t.copy(in(0, 1), scratch(1, 3), 2);
  t.copy(scratch(1, 3), out(0), 2);
  t.copy(scratch(1, 0), out(1)).adapts = true;
  const Trace p = place_results(t.trace);
  REQUIRE(p.ops.size() == 3);
  CHECK(p.ops[1].dst == scratch(1, 3));
  CHECK(p.extents[kScratch][1] == 5);
}

TEST_CASE("results: a user's copy to the output stays") {
  Traced t(2);
  t.copy(in(0), scratch(1));
  t.copy(scratch(1), out(1));
  CHECK(place_results(t.trace).ops.size() == 2);
}

TEST_CASE("results: an operation on the output, or on a range that crosses the end of the result, keeps the copy") {
  Traced beyond(2);
  beyond.copy(in(0), scratch(1), 3);
  beyond.copy(scratch(1), out(1), 2).adapts = true;
  CHECK(place_results(beyond.trace).ops.size() == 2);
  Traced used(2);
  used.copy(in(0), scratch(1), 2);
  used.copy(in(0), out(1, 4));
  used.copy(scratch(1), out(1), 2).adapts = true;
  CHECK(place_results(used.trace).ops.size() == 3);
}

TEST_CASE("results: a copy of the input is cut at the ends of the result") {
  Traced t(2);
  t.copy(in(1), scratch(1), 6).adapts = true;
  t.reduce(in(0), scratch(1, 2), 2);
  t.copy(scratch(1, 5), out(0));
  t.copy(scratch(1, 2), out(1), 2).adapts = true;
  const Trace p = place_results(t.trace);
  REQUIRE(p.ops.size() == 5);
  CHECK(p.ops[0].dst == scratch(1));
  CHECK(p.ops[0].count == 2);
  CHECK(p.ops[1].src == in(1, 2));
  CHECK(p.ops[1].dst == out(1));
  CHECK(p.ops[1].count == 2);
  CHECK(p.ops[2].src == in(1, 4));
  CHECK(p.ops[2].dst == scratch(1, 4));
  CHECK(p.ops[3].dst == out(1));
}

}  // namespace
}  // namespace gc3::compiler
