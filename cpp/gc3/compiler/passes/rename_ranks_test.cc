#include "gc3/compiler/passes/rename_ranks.h"

#include "gc3/base/errors/common.h"
#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using model::CollectiveKind;
using testing::in;
using testing::kExtent;
using testing::out;
using testing::scratch;
using testing::Traced;

const std::vector<std::uint32_t> kOrder = {2, 0, 3, 1};

TEST_CASE("ranks, and blocks that belong to ranks, are renamed") {
  Traced t(4, CollectiveKind::allgather);
  t.copy(in(1, 3), out(2, kExtent + 3), 2);
  t.copy(scratch(1, 3), scratch(2, 5));
  const Trace renamed = rename_ranks(t.trace, kOrder).value();
  REQUIRE(renamed.ops.size() == 2);
  CHECK(renamed.ops[0].src == in(0, 3));  // a buffer of one block
  CHECK(renamed.ops[0].dst == out(3, 0 * kExtent + 3));
  CHECK(renamed.ops[0].local == renamed.ops[0].dst);
  CHECK(renamed.ops[1].src == scratch(0, 3));
  CHECK(renamed.ops[1].dst == scratch(3, 5));
  CHECK(renamed.buffer_names == t.trace.buffer_names);
}

TEST_CASE("the root and the extents go with their ranks") {
  Traced t(4, CollectiveKind::gather);
  t.trace.extents[kScratch] = {5, 6, 7, 8};
  const Trace renamed = rename_ranks(t.trace, kOrder).value();
  CHECK(renamed.collective.root() == 2);
  CHECK(renamed.extents[kOutput] == std::vector<std::uint32_t>{0, 0, 4 * kExtent, 0});
  CHECK(renamed.extents[kScratch] == std::vector<std::uint32_t>{6, 8, 5, 7});
}

TEST_CASE("a message of blocks that lie apart stays one message") {
  Traced t(4, CollectiveKind::alltoall);
  t.reduce(in(0, 0), out(1, kExtent), 3 * kExtent).channel = 7;
  const Trace renamed = rename_ranks(t.trace, kOrder).value();
  // Blocks 0 to 2 of the input are 2, 0, 3; blocks 1 to 3 of the output are 0, 3, 1.
  REQUIRE(renamed.ops.size() == 7);
  const Range there{2, 0, 3};
  const Range here{0, 0, 3};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(renamed.ops[i].kind == OpKind::copy);
    CHECK(renamed.ops[i].src == in(2, kOrder[i] * kExtent));
    CHECK(renamed.ops[i].count == kExtent);
    CHECK(renamed.ops[i].channel == kAuto);
    CHECK(renamed.ops[4 + i].kind == OpKind::reduce);
    CHECK(renamed.ops[4 + i].dst == out(0, kOrder[1 + i] * kExtent));
  }
  CHECK(renamed.ops[3].kind == OpKind::copy);
  CHECK(renamed.ops[3].src == there);
  CHECK(renamed.ops[3].dst == here);
  CHECK(renamed.ops[3].count == 3 * kExtent);
  CHECK(renamed.ops[3].channel == 7);
  REQUIRE(renamed.buffer_names.size() == 4);
  CHECK(renamed.extents[3] == std::vector<std::uint32_t>{3 * kExtent, 0, 3 * kExtent, 0});
}

TEST_CASE("work within a rank is cut where blocks lie apart") {
  Traced t(4, CollectiveKind::alltoall);
  t.copy(in(1, kExtent - 1), scratch(1, 0), 3);
  const Trace renamed = rename_ranks(t.trace, kOrder).value();
  REQUIRE(renamed.ops.size() == 2);
  CHECK(renamed.ops[0].src == in(0, 3 * kExtent - 1));
  CHECK(renamed.ops[0].count == 1);
  CHECK(renamed.ops[1].src == in(0, 0));
  CHECK(renamed.ops[1].dst == scratch(0, 1));
  CHECK(renamed.ops[1].count == 2);
  CHECK(renamed.buffer_names.size() == 3);
}

TEST_CASE("an order of the ranks has each of them once") {
  const Traced t(3);
  for (const std::vector<std::uint32_t>& order :
       std::vector<std::vector<std::uint32_t>>{{0, 1}, {0, 1, 1}, {1, 2, 3}}) {
    const auto refused = rename_ranks(t.trace, order);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == ErrorCode::BadArgument);
  }
  CHECK(rename_ranks(t.trace, {}).ok());
}

TEST_CASE("ranks whose number says what they get keep it") {
  const auto refused = rename_ranks(Traced(4, CollectiveKind::alltonext).trace, kOrder);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("the ranks of alltonext cannot be renamed") != std::string::npos);
}

}  // namespace
}  // namespace gc3::compiler
