#include "gc3/base/copy_bytes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace gc3 {
namespace {

TEST_CASE("copies of any length between any places are whole, and nothing around them changes") {
  constexpr std::size_t kPage = 4096;
  std::vector<std::uint8_t> from(6 * kPage);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
  for (const std::size_t behind : {0, 1, 16, 31, 32, 48, 63, 64, 4095}) {
    for (const std::size_t bytes : {0, 1, 63, 2047, 2048, 2049, 2111, 4096, 9999}) {
      CAPTURE(behind);
      CAPTURE(bytes);
      std::vector<std::uint8_t> to(from.size(), 99);
      // Relative to the source modulo a page.
      const std::uintptr_t apart =
          reinterpret_cast<std::uintptr_t>(from.data()) - reinterpret_cast<std::uintptr_t>(to.data());
      const std::size_t at = (apart + behind) % kPage + 1;
      const std::uint8_t* const source = from.data() + 1;
      CHECK(lags(to.data() + at, source) == (behind > 0 && behind <= slow_behind()));
      std::vector<std::uint8_t> expected(to.size(), 99);
      for (std::size_t i = 0; i < bytes; ++i) expected[at + i] = source[i];
      copy_bytes(to.data() + at, source, bytes);
      CHECK(to == expected);
      if (bytes < 2048) continue;
      std::ranges::fill(to, std::uint8_t{99});
      copy_lagging(to.data() + at, source, bytes);  // also on a processor that does not need it
      CHECK(to == expected);
    }
  }
}

TEST_CASE("a processor is slow behind nothing, one vector or two") {
  const std::vector<std::size_t> found{0, 31, 63};
  CHECK(std::ranges::count(found, slow_behind()) == 1);
}

TEST_CASE("nothing is copied from nowhere") { copy_bytes(nullptr, nullptr, 0); }

}  // namespace
}  // namespace gc3
