#include "gc3/compiler/pipeline.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/compiler.h"
#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::in;
using testing::out;
using testing::scratch;
using testing::Traced;

// Three ranks that each forward the message of the rank before, and a chain over ranks 3, 4 and 5.
Traced ring_and_chain() {
  Traced t(6);
  for (std::uint32_t r = 0; r < 3; ++r) t.copy(in(r), scratch((r + 1) % 3));
  for (std::uint32_t r = 0; r < 3; ++r) t.copy(scratch((r + 1) % 3), out((r + 2) % 3));
  t.copy(in(3), scratch(4));
  t.copy(scratch(4), out(5));
  return t;
}

std::size_t fused(const ir::Program& program) {
  return static_cast<std::size_t>(
      std::ranges::count(program.instructions, ir::Opcode::recv_copy_send, &ir::Instruction::opcode));
}

TEST_CASE("pipeline: with too few slots only the fused instructions that wait for each other are unfused") {
  const Traced t = ring_and_chain();
  const ir::Program one = compile(t.trace, {1, 1, 0}).value();
  CHECK(fused(one) == 1);  // the sends of the chain
  CHECK(one.slots == 1);
  const ir::Program two = compile(t.trace, {1, 2, 0}).value();
  CHECK(fused(two) == 4);
  CHECK(two.slots == 2);
}

TEST_CASE("pipeline: a program states the slots that it needs, not those that it may use") {
  Traced t(2);
  t.copy(in(0), out(1));
  CHECK(compile(t.trace, {1, 8, 0}).value().slots == 1);
  for (std::uint32_t i = 1; i < 5; ++i) t.copy(in(0, i), out(1, i));
  for (std::uint32_t slots = 1; slots < 8; ++slots) {
    CHECK(compile(t.trace, {1, slots, 0}).value().slots == std::min(slots, 5U));
  }
}

TEST_CASE("pipeline: the number of instances is recorded, and slots and instances are at least one") {
  const Traced t = ring_and_chain();
  CHECK(compile(t.trace, {3, 2, 0}).value().instances == 3);
  CHECK(compile(t.trace, {0, 2, 0}).error().code == ErrorCode::BadArgument);
  CHECK(compile(t.trace, {1, 0, 0}).error().code == ErrorCode::BadArgument);
  CHECK(compile(t.trace, {3, 2, 1}).error().code == ErrorCode::TooManyThreadblocks);
}

TEST_CASE("pipeline: the same trace gives the same program, and every stage has a text") {
  const Trace t = testing::random_trace(7, 4, 30);
  CHECK(compile(t, {2, 2, 0}).value() == compile(t, {2, 2, 0}).value());
  for (const Stage stage : {Stage::trace, Stage::chunk_dag, Stage::instructions, Stage::schedule, Stage::ir}) {
    CHECK_FALSE(dump(t, {2, 2, 0}, stage).value().empty());
  }
}

}  // namespace
}  // namespace gc3::compiler
