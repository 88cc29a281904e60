#include "gc3/runtime/core/waiting/doorbell.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace gc3::core {
namespace {

constexpr std::chrono::seconds kLong{60};  // longer than the test takes

TEST_CASE("one ring ends the sleep of every thread that has announced itself") {
  Doorbell bell{};
  bell.ring();
  CHECK(bell.rung == 0);  // nobody sleeps
  std::vector<std::thread> threads;
  std::atomic<int> woken = 0;
  std::atomic<int> announced = 0;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const std::uint32_t seen = bell.announce();
      announced.fetch_add(1);
      if (bell.sleep(seen, kLong) != seen) woken.fetch_add(1);
      bell.withdraw();
    });
  }
  while (announced != 3) std::this_thread::yield();
  bell.ring();
  for (std::thread& thread : threads) thread.join();
  CHECK(woken == 3);
  CHECK(bell.sleepers == 0);
}

TEST_CASE("a ring between the announcement and the sleep is not lost, and a sleep without one ends") {
  Doorbell bell{};
  const std::uint32_t seen = bell.announce();
  bell.ring();
  const std::uint32_t now = bell.sleep(seen, kLong);
  CHECK(now != seen);
  CHECK(bell.sleep(now, std::chrono::milliseconds(1)) == now);
  bell.withdraw();
}

}  // namespace
}  // namespace gc3::core
