#include "gc3/runtime/core/cores.h"

#include <doctest/doctest.h>

#include <thread>

namespace gc3::core {
namespace {

Cores some(std::initializer_list<std::uint32_t> bits) {
  Cores cores;
  for (const std::uint32_t bit : bits) cores.words[bit / 64] |= std::uint64_t{1} << bit % 64;
  return cores;
}

TEST_CASE("workers get equal shares of the cores, and share cores evenly if there are fewer") {
  const Cores all = some({1, 3, 64, 200, 4095});
  CHECK(all.count() == 5);
  CHECK(all.share_of({0, 1}) == all);
  CHECK(all.share_of({0, 2}) == some({1, 3}));
  CHECK(all.share_of({1, 2}) == some({64, 200, 4095}));
  CHECK(all.share_of({4, 5}) == some({4095}));
  CHECK(all.share_of({5, 7}) == some({1}));
  CHECK(all.share_of({6, 7}) == some({3}));
  CHECK(Cores{}.share_of({1, 2}) == Cores{});
}

TEST_CASE("a thread keeps to its cores, and others are not concerned") {
  const Cores before = Cores::own();
  REQUIRE(before.count() >= 1);
  Cores seen;
  const Cores last = before.share_of({before.count() - 1, before.count()});
  std::thread([&] {
    last.keep_here();
    seen = Cores::own();
  }).join();
  CHECK(last.count() == 1);
  CHECK(seen == last);
  CHECK(Cores::own() == before);
}

}  // namespace
}  // namespace gc3::core
