#include "gc3/verify/split.h"

#include <doctest/doctest.h>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/ir/text.h"
#include "gc3/verify/verify.h"

namespace gc3::verify {
namespace {

constexpr std::string_view kSwap = R"(program "swap" version 1
collective allreduce ranks 2 chunks 3
protocol Simple instances 1 slots 2

rank 0 scratch 1
  tb 0 channel 0 send 1 recv 1
    0 send in[0] x3
    1 rrc in[0] -> out[0] x3 signals
  tb 1 channel 0
    0 copy out[2] -> sc[0] after (0:1)

rank 1
  tb 0 channel 0 send 0 recv 0
    0 send in[0] x3
    1 rrc in[0] -> out[0] x3
)";

TEST_CASE("split: a step for each chunk of a message; dependents wait for the last one") {
  const ir::Program p = ir::parse_text(kSwap).value();
  REQUIRE(has_long_messages(p));
  const ir::Program split = split_messages(p).value();
  CHECK_FALSE(has_long_messages(split));
  CHECK(ir::to_text(split) == R"(program "swap" version 1
collective allreduce ranks 2 chunks 3
protocol Simple instances 1 slots 2

rank 0 scratch 1
  tb 0 channel 0 send 1 recv 1
    0 send in[0]
    1 send in[1]
    2 send in[2]
    3 rrc in[0] -> out[0]
    4 rrc in[1] -> out[1]
    5 rrc in[2] -> out[2] signals
  tb 1 channel 0
    0 copy out[2] -> sc[0] after (0:5)

rank 1
  tb 0 channel 0 send 0 recv 0
    0 send in[0]
    1 send in[1]
    2 send in[2]
    3 rrc in[0] -> out[0]
    4 rrc in[1] -> out[1]
    5 rrc in[2] -> out[2]
)");
  CHECK(verify(split, {.slots = 3}).ok());
}

TEST_CASE("split: three chunks of each rank are in flight before any is received") {
  const ir::Program p = ir::parse_text(kSwap).value();
  CHECK(verify(p).ok());
  const Report found = verify(p, {.chunk_per_slot = true});
  REQUIRE(found.diagnostics.size() == 1);
  CHECK(found.diagnostics[0].code == ErrorCode::SlotDeadlock);
  CHECK(verify(p, {.slots = 3, .chunk_per_slot = true}).ok());
}

TEST_CASE("split: more chunks than can be verified one by one") {
  ir::Program p = ir::parse_text(kSwap).value();
  p.instructions[0].count = 1U << 28U;
  CHECK(split_messages(p).error().code == ErrorCode::ProgramTooLarge);
}

}  // namespace
}  // namespace gc3::verify
