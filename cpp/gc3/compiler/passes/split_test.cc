#include "gc3/compiler/passes/split.h"

#include <doctest/doctest.h>

#include "gc3/base/errors/common.h"
#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::in;
using testing::kExtent;
using testing::out;
using testing::scratch;
using testing::Traced;

TEST_CASE("split: chunks are cut into the smallest number of parts that all factors divide") {
  const auto parts = [](std::uint32_t first, std::uint32_t second, std::uint32_t instances) {
    Traced t(2);
    t.copy(in(0), out(1)).factor = first;
    t.copy(in(0, 1), out(1, 1)).factor = second;
    return split(t.trace, instances).value().collective.chunks() / kExtent;
  };
  CHECK(parts(1, 1, 1) == 1);
  CHECK(parts(2, 2, 1) == 2);
  CHECK(parts(2, 4, 1) == 4);
  CHECK(parts(2, 3, 1) == 6);
  CHECK(parts(4, 6, 1) == 12);
  CHECK(parts(1, 2, 3) == 6);
  CHECK(parts(1, 1, 5) == 5);
}

TEST_CASE("split: the parts of an operation cover its chunks without overlap, each in a lane") {
  Traced t(2);
  t.reduce(in(0, 3), out(1, 1), 2).factor = 2;
  t.trace.ops[0].local = scratch(1, 4);
  t.copy(in(0), out(1, 5)).factor = 4;
  const Trace cut = split(t.trace, 1).value();
  REQUIRE(cut.ops.size() == 6);
  for (std::uint32_t lane = 0; lane < 2; ++lane) {
    const ChunkOp& op = cut.ops[lane];
    CHECK(op.lane == lane);
    CHECK(op.count == 4);  // half of two chunks of four parts each
    CHECK(op.src.index == 12 + lane * 4);
    CHECK(op.dst.index == 4 + lane * 4);
    CHECK(op.local.index == 16 + lane * 4);
  }
  for (std::uint32_t lane = 0; lane < 4; ++lane) {
    const ChunkOp& op = cut.ops[2 + lane];
    CHECK(op.lane == lane);
    CHECK(op.count == 1);
    CHECK(op.src.index == lane);
    CHECK(op.dst.index == 20 + lane);
  }
  CHECK(cut.extents[kScratch][1] == kExtent * 4);
  CHECK(cut.extents[kOutput][0] == cut.collective.output_chunks(0));
}

TEST_CASE("split: instances multiply the factors") {
  Traced t(2);
  t.copy(in(0), out(1)).factor = 2;
  t.copy(in(0, 1), out(1, 1));
  const Trace cut = split(t.trace, 3).value();
  REQUIRE(cut.ops.size() == 9);
  CHECK(cut.ops[5].factor == 6);
  CHECK(cut.ops[5].lane == 5);
  CHECK(cut.ops[6].factor == 3);
  CHECK(cut.ops[6].count == 2);
}

TEST_CASE("split: too many parts are an error") {
  Traced t(2);
  t.copy(in(0), out(1)).factor = 1024;
  CHECK(split(t.trace, 1U << 20U).error().code == ErrorCode::ProgramTooLarge);
}

}  // namespace
}  // namespace gc3::compiler
