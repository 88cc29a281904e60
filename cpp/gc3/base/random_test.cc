#include "gc3/base/random.h"

#include <doctest/doctest.h>

#include <bit>
#include <set>
#include <vector>

namespace gc3 {

TEST_CASE("every word is drawn, and drawn anew each time") {
  constexpr std::size_t kWords = 300000;  // needs more than one system call
  std::vector<std::uint64_t> first(kWords);
  std::vector<std::uint64_t> second(kWords);
  REQUIRE(draw_random(first).ok());
  REQUIRE(draw_random(second).ok());
  std::set<std::uint64_t> seen(first.begin(), first.end());
  seen.insert(second.begin(), second.end());
  CHECK(seen.size() == 2 * kWords);  // two are equal once in 2^26 runs
  std::size_t ones = 0;
  for (const std::uint64_t word : first) ones += static_cast<std::size_t>(std::popcount(word));
  CHECK(ones > kWords * 31);
  CHECK(ones < kWords * 33);
  CHECK(draw_random({}).ok());
}

}  // namespace gc3
