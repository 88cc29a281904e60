// Where the chunks of a call lie whose blocks have lengths of their own, or lie in several arrays.
#include "gc3/runtime/interp/v_layout.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3::interp {
namespace {

using model::CollectiveKind;
using model::Protocol;
using testing::in;
using testing::out;
using testing::ProgramBuilder;

constexpr std::array<std::uint8_t*, 3> kNoMemory = {};

// An all-gather of two ranks in two chunks, from rank 0: one message with both chunks, one of each kind of other step.
ir::Program gather() {
  ProgramBuilder b(CollectiveKind::allgather, 2, 2, false, Protocol::Simple);
  for (std::uint32_t r = 0; r < 2; ++r) {
    b.tb(r, 1 - r, 1 - r);
    b.send(in(0), 2);
    b.recv(out(2 * (1 - r)), 2);
    b.tb(r);
    b.step(ir::Opcode::copy, in(0), out(2 * r), 2);
  }
  return b.build();
}

VLayout layout_of(const ir::Program& program, std::uint32_t rank) {
  const auto plan = Plan::create(program);
  REQUIRE(plan.ok());
  auto made = VLayout::create(program, plan.value(), rank);
  REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().str()));
  return std::move(made).value();
}

// The extents of step `s`.
std::vector<Extent> extents(const VLayout& layout, std::size_t s) {
  const VStep& step = layout.steps()[s];
  return {layout.extents() + step.first, layout.extents() + step.first + step.extents};
}

TEST_CASE("chunks lie where the counts put them, and those that follow each other are one extent") {
  VLayout layout = layout_of(gather(), 0);
  const std::vector<std::uint64_t> counts = {3, 5};
  REQUIRE(layout.measure(counts, 4, false).ok());
  CHECK(layout.sizes() == std::array<std::uint64_t, 2>{12, 32});
  CHECK(layout.needs() == std::array<std::uint64_t, 3>{0, 0, 0});
  std::array<std::uint8_t, 12> x{};
  std::array<std::uint8_t, 32> y{};
  const std::vector<std::uint8_t*> input = {x.data()};
  const std::vector<std::uint8_t*> output = {y.data(), y.data() + 12};
  layout.place(input, output, {}, kNoMemory, true);
  const std::vector<Extent> received = extents(layout, 1);
  REQUIRE(received.size() == 1);
  CHECK(received[0].dst == y.data() + 12);
  CHECK(received[0].bytes == 20);
  // With several tiles each chunk is cut by itself: of 5 elements the first chunk has 3.
  layout.place(input, output, {}, kNoMemory, false);
  const std::vector<Extent> cut = extents(layout, 1);
  REQUIRE(cut.size() == 2);
  CHECK(cut[0].bytes == 12);
  CHECK(cut[1].dst == y.data() + 24);
  CHECK(cut[1].bytes == 8);
  CHECK(cut[1].begin == 0);
}

TEST_CASE("a block in several arrays is cut as if they were one") {
  VLayout layout = layout_of(gather(), 0);
  const std::vector<std::uint64_t> counts = {6, 6};
  REQUIRE(layout.measure(counts, 1, false).ok());
  std::array<std::uint8_t, 2> a{};
  std::array<std::uint8_t, 4> b{};
  std::array<std::uint8_t, 4> a2{};  // of both blocks
  std::array<std::uint8_t, 8> b2{};
  const std::vector<std::uint64_t> arrays = {2, 0, 4};
  const std::vector<std::uint8_t*> input = {a.data(), nullptr, b.data()};
  const std::vector<std::uint8_t*> output = {a2.data(), nullptr, b2.data(), a2.data() + 2, nullptr, b2.data() + 4};
  layout.place(input, output, arrays, kNoMemory, false);
  const std::vector<Extent> copied = extents(layout, 2);
  REQUIRE(copied.size() == 3);  // chunks of 3 bytes: 2 + 1, and 3
  CHECK(copied[0].src == a.data());
  CHECK(copied[0].bytes == 2);
  CHECK(copied[1].src == b.data());
  CHECK(copied[1].dst == b2.data());
  CHECK(copied[1].bytes == 1);
  CHECK(copied[1].begin == 2);
  CHECK(copied[2].src == b.data() + 1);
  CHECK(copied[2].begin == 0);
  layout.place(input, output, arrays, kNoMemory, true);
  const std::vector<Extent> received = extents(layout, 1);
  REQUIRE(received.size() == 2);
  CHECK(received[0].dst == a2.data() + 2);
  CHECK(received[1].dst == b2.data() + 4);
  CHECK(received[1].bytes == 4);
}

TEST_CASE("the tiles of a message are cut from its extents") {
  const std::array<Extent, 3> parts = {{{nullptr, nullptr, 5, 0}, {nullptr, nullptr, 4, 5}, {nullptr, nullptr, 7, 0}}};
  const Step step;
  const VStep entry{0, 3};
  VRun run;
  run.first_step = &step;
  run.steps = &entry;
  run.extents = parts.data();
  run.tile_bytes = 6;  // of each chunk: of 9 bytes 6 + 3, of 7 bytes 6 + 1
  const VMessage first = message_of(run, 0, step);
  CHECK(first.segments == 3);
  CHECK(first.bytes == 12);
  CHECK(first.part_of(parts[1]) == 1);
  const VMessage second = message_of(run, 1, step);
  CHECK(second.extents == &parts[1]);
  CHECK(second.bytes == 4);
  CHECK(second.skipped_of(parts[1]) == 1);
  CHECK(message_of(run, 2, step).segments == 0);
}

TEST_CASE("a place that is too small for what passes through makes a copy of its buffer") {
  // Rank 0 keeps the block of rank 1 in its own place of the output for a while.
  ProgramBuilder b(CollectiveKind::allgather, 2, 1, false, Protocol::Simple);
  b.tb(0, 1, 1);
  b.send(in(0));
  b.recv(out(0));
  b.step(ir::Opcode::copy, out(0), out(1));
  b.step(ir::Opcode::copy, in(0), out(0));
  b.tb(1, 0, 0);
  b.send(in(0));
  b.recv(out(0));
  b.step(ir::Opcode::copy, in(0), out(1));
  VLayout layout = layout_of(b.build(), 0);
  const std::vector<std::uint64_t> more = {2, 9};
  REQUIRE(layout.measure(more, 1, false).ok());
  CHECK(layout.needs() == std::array<std::uint64_t, 3>{0, 18, 0});
  std::array<std::uint8_t, 2> x{};
  std::array<std::uint8_t, 11> y{};
  std::array<std::uint8_t, 18> copy{};
  const std::vector<std::uint8_t*> input = {x.data()};
  const std::vector<std::uint8_t*> output = {y.data(), y.data() + 2};
  layout.place(input, output, {}, {nullptr, copy.data(), nullptr}, true);
  REQUIRE(layout.copied_out().size() == 2);
  CHECK(layout.copied_out()[1].src == y.data() + 2);
  CHECK(layout.copied_out()[1].dst == copy.data() + 9);
  const std::vector<std::uint64_t> fewer = {9, 2};
  REQUIRE(layout.measure(fewer, 1, false).ok());
  CHECK(layout.needs() == std::array<std::uint64_t, 3>{0, 0, 0});
  const std::vector<std::uint64_t> huge = {1, std::uint64_t{1} << 62U};
  CHECK(layout.measure(huge, 8, false).error().code == ErrorCode::BadBuffer);
}

}  // namespace
}  // namespace gc3::interp
