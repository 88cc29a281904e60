#include <doctest/doctest.h>

#include <string>

#include "gc3/base/errors/compiler.h"
#include "gc3/compiler/schedule.h"
#include "gc3/compiler/test_traces.h"

namespace gc3::compiler {
namespace {

using testing::Fused;
using testing::in;
using testing::out;
using testing::scratch;
using testing::Traced;

struct Placed {
  explicit Placed(Traced t, std::uint32_t limit = 0) : fused(std::move(t.trace)) {
    channels = assign_channels(fused.trace, fused.fusions).value();
    result = assign_threadblocks(fused.trace, fuse(fused.trace, fused.chunks, fused.lowered, channels.fusions),
                                 channels, limit);
  }
  const Threadblocks& blocks() const { return result.value(); }
  // Whether a threadblock of the rank both sends and receives.
  std::uint32_t both(std::uint32_t rank) const {
    std::uint32_t found = 0;
    for (std::uint32_t b = blocks().first_of_rank[rank]; b < blocks().first_of_rank[rank + 1]; ++b) {
      const Block& block = blocks().blocks[b];
      found += block.send_connection != kNone && block.recv_connection != kNone ? 1 : 0;
    }
    return found;
  }

  Fused fused;
  Channels channels;
  Result<Threadblocks> result = Threadblocks();
};

// Rank 0 sends to ranks 1 and 2 and receives from them, and forwards nothing.
Traced star() {
  Traced t(3);
  for (std::uint32_t r = 1; r < 3; ++r) {
    t.copy(in(0, r), out(r));
    t.copy(in(r), out(0, r));
  }
  return t;
}

TEST_CASE("threadblocks: one for each peer of a send and one for each peer of a receive") {
  const Placed p(star());
  CHECK(p.blocks().count(0) == 4);
  CHECK(p.blocks().count(1) == 2);
  CHECK(p.both(0) == 0);
}

TEST_CASE("threadblocks: forwarded data is received and sent by one threadblock") {
  Traced t(3);
  t.copy(in(0), scratch(1));
  t.copy(scratch(1), out(2));
  const Placed p(std::move(t));
  CHECK(p.blocks().count(1) == 1);
  CHECK(p.both(1) == 1);
}

TEST_CASE("threadblocks: a rank that only copies has one, a rank with nothing to do has none") {
  Traced t(3);
  t.copy(in(1), out(1));
  t.copy(in(1, 1), out(1, 1));
  const Placed p(std::move(t));
  CHECK(p.blocks().count(0) == 0);
  CHECK(p.blocks().count(1) == 1);
  CHECK(p.blocks().count(2) == 0);
}

TEST_CASE("threadblocks: senders and receivers are joined until the limit is met, and no further") {
  for (std::uint32_t limit = 2; limit < 6; ++limit) {
    const Placed p(star(), limit);
    REQUIRE(p.result.ok());
    CHECK(p.blocks().count(0) == std::min(limit, 4U));
    CHECK(p.both(0) == 4 - p.blocks().count(0));
    CHECK(p.both(1) == 0);  // ranks that need no more than two keep theirs
  }
}

TEST_CASE("threadblocks: only threadblocks of one channel are joined") {
  Traced t(3);
  t.copy(in(0, 1), out(1)).channel = 0;
  t.copy(in(1), out(0)).channel = 1;
  const Placed p(std::move(t), 1);
  REQUIRE_FALSE(p.result.ok());
  CHECK(p.result.error().code == ErrorCode::TooManyThreadblocks);
}

TEST_CASE("threadblocks: the error names the rank with the most threadblocks, and their number") {
  Traced t(6);
  for (std::uint32_t r = 1; r < 3; ++r) t.copy(in(0), out(r));            // two of rank 0
  for (std::uint32_t r : {0U, 1U, 2U, 4U}) t.copy(in(3), out(r, r + 1));  // four of rank 3
  for (std::uint32_t r : {0U, 1U, 2U}) t.copy(in(5), out(r, 7));          // three of rank 5
  const Placed p(std::move(t), 1);
  REQUIRE_FALSE(p.result.ok());
  CHECK(p.result.error().message == "rank 3 needs 4, the target allows 1");
}

}  // namespace
}  // namespace gc3::compiler
