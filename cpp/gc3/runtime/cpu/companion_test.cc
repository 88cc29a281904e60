#include "gc3/runtime/cpu/companion.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "gc3/base/errors/common.h"

namespace gc3::cpu {
namespace {

void await(const std::atomic<int>& moves, int more) {
  for (const int before = moves; moves < before + more;) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

TEST_CASE("a move that finds no memory ends the work with a message, and the next work is done") {
  Companion companion;
  std::atomic<int> moves = 0;
  const Companion::Work fails{[&]() -> int {
    ++moves;
    throw std::bad_alloc();
  }};
  const Companion::Work works{[&] {
    ++moves;
    return 1;
  }};
  for (int round = 0; round < 3; ++round) {
    moves = 0;
    Companion::During first(companion, fails);
    while (moves == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));  // only one: it fails at once
    const Status status = first.end();
    REQUIRE(!status.ok());
    CHECK(status.error().code == ErrorCode::OutOfMemory);
    CHECK(first.end().ok());
    Companion::During second(companion, works);
    await(moves, 3);
    CHECK(second.end().ok());
  }
  CHECK(Companion::During(companion, {}).end().ok());
}

TEST_CASE("nothing moves in a pause, and after it the work goes on") {
  Companion companion;
  {
    const Companion::Pause idle(companion);
  }
  std::atomic<int> moves = 0;
  int unguarded = 0;  // ThreadSanitizer would tell of two threads that use it
  const Companion::Work work{[&] {
    ++unguarded;
    ++moves;
    return 0;
  }};
  Companion::During during(companion, work);
  for (int round = 0; round < 20; ++round) {
    await(moves, 2);
    const Companion::Pause pause(companion);
    const int before = moves;
    ++unguarded;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(moves == before);
  }
  await(moves, 2);
  CHECK(during.end().ok());
  CHECK(unguarded == moves + 20);
}

}  // namespace
}  // namespace gc3::cpu
