#include "gc3/runtime/core/waiting/bells.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace gc3::core {
namespace {

constexpr auto kNever = std::chrono::seconds(30);  // a sleep of this length has lost its wake-up

struct Memory {
  alignas(128) std::array<std::uint8_t, 8192> bytes{};
};

// `ranks` threads post their numbers and wait for those of all others, `rounds` times. The bits of `mode` are added to
// the awaited ranks. Between two posts each thread also rings without a post.
void meet_often(std::uint32_t ranks, std::uint32_t mode, std::uint64_t rounds) {
  Memory memory;
  REQUIRE(Bells::bytes(ranks) <= memory.bytes.size());
  std::vector<std::atomic<std::uint64_t>> posted(ranks);
  std::atomic<std::uint32_t> lost{0};
  std::atomic<std::uint64_t> slept{0};
  const auto body = [&](std::uint32_t rank) {
    Bells bells;
    bells.open(memory.bytes.data(), rank, ranks);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      posted[rank].store(round, std::memory_order_release);
      bells.ring();
      const auto missing = [&] {
        std::uint32_t awaited = 0;
        for (std::uint32_t r = 0; r < ranks; ++r) {
          if (posted[r].load(std::memory_order_acquire) < round) awaited |= Bells::bit(r);
        }
        return awaited;
      };
      std::uint32_t awaited = missing();
      if (awaited == 0) continue;
      bells.prepare(awaited | mode);
      while ((awaited = missing()) != 0) {
        if (!bells.is_sure()) {  // some rank does not ring yet
          std::this_thread::yield();
          bells.prepare(awaited | mode);
          continue;
        }
        slept.fetch_add(1, std::memory_order_relaxed);
        if (!bells.sleep(awaited | mode, kNever)) lost.fetch_add(1);
        bells.ring();
      }
      bells.cancel();
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
  CHECK(lost.load() == 0);
  CHECK(slept.load() != 0);
}

TEST_CASE("no wake-up is lost by sleepers that await one rank, all ranks or any") {
  meet_often(2, 0, 5000);
  meet_often(4, 0, 3000);
  meet_often(4, Bells::kAny, 3000);
  meet_often(40, 0, 40);  // ranks share bits
  meet_often(40, Bells::kAny, 40);
}

TEST_CASE("a sleeper is woken when all awaited ranks have rung, or with kAny when one has") {
  Memory memory;
  Bells sleeper;
  Bells first;
  Bells second;
  sleeper.open(memory.bytes.data(), 0, 3);
  first.open(memory.bytes.data(), 1, 3);
  second.open(memory.bytes.data(), 2, 3);
  const std::uint32_t both = Bells::bit(1) | Bells::bit(2);
  const auto asleep = [&] { return *reinterpret_cast<const std::uint32_t*>(memory.bytes.data()); };

  first.ring();  // no rank sleeps, so the word of rank 1 does not change
  sleeper.prepare(both);
  CHECK_FALSE(sleeper.is_sure());
  first.ring();
  CHECK(asleep() == Bells::bit(2));
  first.ring();
  CHECK(asleep() == Bells::bit(2));
  second.ring();
  CHECK(asleep() == 0);
  CHECK(sleeper.sleep(both, kNever));  // at once, and prepared again
  CHECK(asleep() == both);
  CHECK(sleeper.is_sure());

  // Woken by a ring of the first rank that was for something else, it awaits only that one. The second need not ring.
  first.ring();
  CHECK(sleeper.sleep(Bells::bit(1), kNever));
  CHECK(asleep() == Bells::bit(1));
  CHECK(sleeper.sleep(both, kNever));  // not announced, so the caller checks first
  CHECK(asleep() == both);

  sleeper.prepare(both | Bells::kAny);
  second.ring();
  CHECK(asleep() == 0);
  sleeper.prepare(Bells::bit(2));
  first.ring();  // not awaited
  CHECK(asleep() == Bells::bit(2));
  first.ring_all();
  CHECK(asleep() == 0);
  sleeper.prepare(both);
  CHECK_FALSE(sleeper.sleep(both, std::chrono::nanoseconds(1)));
  sleeper.cancel();
  CHECK(asleep() == 0);
}

TEST_CASE("a rank that has only taken messages wakes those that await room for others") {
  Memory memory;
  Bells sleeper;
  Bells other;
  sleeper.open(memory.bytes.data(), 0, 3);
  other.open(memory.bytes.data(), 1, 3);
  const auto asleep = [&] { return *reinterpret_cast<const std::uint32_t*>(memory.bytes.data()); };
  const std::uint32_t both = Bells::bit(1) | Bells::bit(2);

  sleeper.prepare(both);
  other.ring_for_room();
  CHECK(asleep() == both);
  sleeper.prepare(both | Bells::kRoom);
  other.ring_for_room();
  CHECK(asleep() == (Bells::bit(2) | Bells::kRoom));
  CHECK_FALSE(sleeper.sleep(Bells::bit(2) | Bells::kRoom, std::chrono::nanoseconds(1)));
  sleeper.prepare(Bells::bit(1) | Bells::kRoom);
  other.ring();  // also for messages
  CHECK((asleep() & both) == 0);
  CHECK(sleeper.sleep(Bells::bit(1) | Bells::kRoom, kNever));  // at once
  sleeper.prepare(Bells::kAnybody);
  other.ring_for_room();
  CHECK(asleep() == 0);
  sleeper.prepare(Bells::bit(1));
  CHECK_FALSE(sleeper.sleep(Bells::bit(1), std::chrono::nanoseconds(1)));
  CHECK(sleeper.sleep(Bells::bit(1) | Bells::kRoom, kNever));  // not announced, so the caller checks first
}

TEST_CASE("a rank that sleeps and has posted nothing wakes no rank, but all ranks know that it rings") {
  Memory memory;
  Bells first;
  Bells second;
  first.open(memory.bytes.data(), 0, 33);
  second.open(memory.bytes.data(), 30, 33);
  first.prepare(Bells::bit(30));
  CHECK_FALSE(first.is_sure());
  second.prepare(Bells::bit(1));
  CHECK_FALSE(second.sleep(Bells::bit(1), std::chrono::nanoseconds(1), false));
  CHECK_FALSE(first.sleep(Bells::bit(30), std::chrono::nanoseconds(1), false));  // was not woken
  CHECK(first.is_sure());
}

}  // namespace
}  // namespace gc3::core
