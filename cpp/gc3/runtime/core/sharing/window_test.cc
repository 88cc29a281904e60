#include "gc3/runtime/core/sharing/window.h"

#include <doctest/doctest.h>

#include <cstdint>

#include "gc3/base/errors/common.h"

namespace gc3::core {
namespace {

constexpr std::uint64_t kPageSize = 4096;

TEST_CASE("window: two mappings of a file hold the same memory at the same offsets") {
  const SharedMemory memory = SharedMemory::create().value();
  Window one;
  Window two;
  for (const std::uint32_t segment : {0U, 1U, 5U}) {
    const Extent part{Window::start_of(segment) + kPageSize, kPageSize};
    REQUIRE(memory.reserve(part, "a test").ok());
    std::uint8_t* const at = one.map(memory, part).value();
    at[7] = static_cast<std::uint8_t>(segment + 1);
    CHECK(two.map(memory, part).value()[7] == segment + 1);
    CHECK(one.map(memory, part).value() == at);
    CHECK(one.at(part.offset, part.bytes) == at);
    CHECK(one.offset_of(at + 7) == part.offset + 7);
    CHECK(two.offset_of(at) == Window::kNowhere);
  }
}

TEST_CASE("window: only segments in use take address space") {
  const SharedMemory memory = SharedMemory::create().value();
  Window window;
  CHECK(window.mapped() == 0);
  CHECK(window.at(0, 1) == nullptr);
  REQUIRE(window.map(memory, {0, kPageSize}).ok());
  CHECK(window.mapped() == Window::kFirst);
  REQUIRE(window.map(memory, {Window::start_of(3), kPageSize}).ok());
  CHECK(window.mapped() == Window::kFirst + Window::bytes_of(3));
  CHECK(window.at(Window::start_of(2), 1) == nullptr);
}

TEST_CASE("window: only parts of one segment of the file are mapped") {
  const SharedMemory memory = SharedMemory::create().value();
  Window window;
  REQUIRE(window.map(memory, {0, kPageSize}).ok());
  const std::uint64_t size = memory.size();
  constexpr std::uint64_t kLast = ~std::uint64_t{0} - kPageSize + 1;
  for (const Extent& wrong :
       {Extent{size, kPageSize}, Extent{size - kPageSize, kPageSize}, Extent{size - kPageSize, 2 * kPageSize},
        Extent{kLast, kPageSize}, Extent{kPageSize, kLast}, Extent{1, kPageSize}, Extent{0, 0},
        Extent{Window::start_of(1) - kPageSize, 2 * kPageSize}}) {
    const auto refused = window.map(memory, wrong);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == ErrorCode::SystemRefused);
  }
  CHECK(window.at(Window::start_of(1) - 1, 2) == nullptr);
  CHECK(window.at(kLast, 1) == nullptr);
  CHECK(window.at(1, ~std::uint64_t{0}) == nullptr);
  CHECK(window.mapped() == Window::kFirst);
}

}  // namespace
}  // namespace gc3::core
