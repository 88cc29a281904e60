#include "gc3/runtime/cpu/memory_bound.h"

#include <doctest/doctest.h>

#include "gc3/base/errors/common.h"

using gc3::cpu::MemoryBound;

TEST_CASE("traffic of every shape is timed") {
  for (const gc3::cpu::Traffic& traffic : {gc3::cpu::Traffic{1, 1, 1 << 20}, {3, 3, 100'000}, {1, 7, 4}, {4, 1, 0}}) {
    auto bound = MemoryBound::create(traffic, 2);
    REQUIRE(bound.ok());
    const double seconds = bound.value().seconds(2).value();
    CHECK(seconds > 0);
    // 100 GB/s for each of a thousand cores: no memory is that fast.
    CHECK(seconds > static_cast<double>(traffic.bytes) * (traffic.sources + traffic.targets) / 1e14);
    CHECK(seconds < 10);
  }
}

TEST_CASE("a request for more memory than available is an error") {
  const auto bound = MemoryBound::create({1, 1, std::size_t{1} << 61}, 1);
  REQUIRE_FALSE(bound.ok());
  CHECK(bound.error().code == gc3::ErrorCode::OutOfMemory);
}
