#include "gc3/runtime/core/sharing/heap.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace gc3::core {
namespace {

constexpr std::uint64_t kPage = 4096;

// A process's view of the heap of a file.
struct Opened {
  explicit Opened(const SharedMemory& of) : file(of) {
    auto& words = *reinterpret_cast<Heap::Words*>(window.map(file, {0, kPage}).value());
    heap.open(words);
    std::uint64_t fresh = 0;
    std::atomic_ref(words.used[0]).compare_exchange_strong(fresh, kPage);
    used = words.used;
  }
  Extent take(std::uint64_t bytes) { return heap.take(window, file, bytes).value(); }
  std::uint8_t* at(Extent part) { return window.map(file, part).value(); }
  void give(Extent part) { heap.give(at(part), part); }

  // The bytes that were ever taken.
  std::uint64_t end() const { return std::accumulate(used, used + Window::kSegments, std::uint64_t{0}); }

  const SharedMemory& file;
  Window window;
  Heap heap;
  const std::uint64_t* used = nullptr;
};

// Memory that the system has allocated for the file.
std::uint64_t held(const SharedMemory& memory) {
  struct stat about{};
  REQUIRE(fstat(memory.descriptor(), &about) == 0);
  return static_cast<std::uint64_t>(about.st_blocks) * 512;
}

TEST_CASE("heap: another process uses what one has freed, zeroed, and the file does not grow") {
  const SharedMemory file = SharedMemory::create().value();
  static_assert(sizeof(Heap::Words) <= kPage);
  Opened one(file);
  Opened two(file);
  const Extent first = one.take(50'000);
  const std::uint64_t end = one.end();
  CHECK(end == kPage + Heap::room_of(50'000));
  for (const std::uint64_t bytes : {50'000U, 13 * 4096U, 14 * 4096U}) {
    std::memset(one.at(first), 7, first.bytes);
    two.give(first);
    const Extent again = one.take(bytes);
    CHECK(again.offset == first.offset);
    std::uint8_t* const at = one.at(again);
    CHECK(std::all_of(at, at + again.bytes, [](std::uint8_t b) { return b == 0; }));
  }
  CHECK(one.end() == end);
  CHECK(two.take(50'000).offset != first.offset);  // it is in use
}

TEST_CASE("heap: a size takes at most a quarter more, and a larger one is never given a smaller part") {
  std::uint64_t before = 0;
  for (std::uint64_t pages = 1; pages < 3000; ++pages) {
    const std::uint64_t room = Heap::room_of(pages * kPage);
    CHECK(room >= pages * kPage);
    CHECK(room <= pages * kPage + pages * kPage / 4);
    CHECK(room >= before);
    CHECK(Heap::room_of(pages * kPage - 1) == room);
    before = room;
  }
  CHECK(Heap::room_of(0) == kPage);
  CHECK(Heap::room_of(std::uint64_t{1} << 46U) == std::uint64_t{1} << 46U);
}

TEST_CASE("heap: all but the first page of freed memory is returned to the system") {
  const SharedMemory file = SharedMemory::create().value();
  Opened o(file);
  const std::uint64_t before = held(file);
  const Extent part = o.take(1 << 20U);
  REQUIRE(file.reserve(part, "a test").ok());
  CHECK(held(file) >= before + (1 << 20U));
  o.give(part);
  CHECK(held(file) <= before + kPage);
}

TEST_CASE("heap: parts of random sizes, taken and freed, do not overlap, and the file stops growing") {
  const SharedMemory file = SharedMemory::create().value();
  Opened o(file);
  std::mt19937_64 random(5);
  std::vector<Extent> held_parts;
  std::uint64_t halfway = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (i == 50'000) halfway = o.end();
    if (held_parts.size() > 20) {
      const std::size_t which = random() % held_parts.size();
      std::swap(held_parts[which], held_parts.back());
      CHECK(*reinterpret_cast<std::uint64_t*>(o.at(held_parts.back())) == held_parts.back().offset);
      o.give(held_parts.back());
      held_parts.pop_back();
    }
    const Extent part = o.take(random() % 100'000);
    // Who has a part writes its offset there, which another owner would find changed.
    auto* const word = reinterpret_cast<std::uint64_t*>(o.at(part));
    if (*word != 0) FAIL("a part that is in use, or not zeros");
    *word = part.offset;
    held_parts.push_back(part);
  }
  CHECK(o.end() < halfway + halfway / 4);
  CHECK(o.end() < 64 << 20U);
}

TEST_CASE("heap: processes that are killed while they take and free lose only what they have") {
  const SharedMemory file = SharedMemory::create().value();
  Opened o(file);
  const auto use = [&](std::uint64_t mark, int rounds) {
    std::vector<Extent> parts;
    for (int i = 0; i != rounds; ++i) {
      const Extent part = o.take(1 + static_cast<std::uint64_t>(i) % 5 * kPage);
      const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(o.at(part)));
      if (word.exchange(mark) != 0) return false;
      parts.push_back(part);
      if (parts.size() < 8) continue;
      for (const Extent& mine : parts) {
        if (std::atomic_ref(*reinterpret_cast<std::uint64_t*>(o.at(mine))).load() != mark) return false;
        o.give(mine);
      }
      parts.clear();
    }
    return true;
  };
  for (int round = 0; round < 10; ++round) {
    std::array<pid_t, 3> killed{};
    for (pid_t& process : killed) {
      process = fork();
      if (process == 0) _exit(use(static_cast<std::uint64_t>(getpid()), -1) ? 0 : 1);
    }
    CHECK(use(static_cast<std::uint64_t>(getpid()), 3000));
    for (const pid_t process : killed) {
      int status = 0;
      kill(process, SIGKILL);
      REQUIRE(waitpid(process, &status, 0) == process);
      CHECK(WIFSIGNALED(status));  // else it has found a part with another's mark
    }
  }
  CHECK(use(1, 1000));
  CHECK(o.end() < 16 << 20U);
}

TEST_CASE("heap: a request beyond the file is refused, and a smaller one after it is not") {
  const SharedMemory file = SharedMemory::create().value();
  Opened o(file);
  CHECK_FALSE(o.heap.take(o.window, file, file.size() + 1));
  CHECK_FALSE(o.heap.take(o.window, file, ~std::uint64_t{0}));
  CHECK_FALSE(o.heap.take(o.window, file, file.size() / 2 + 1));
  CHECK(o.take(1).offset == kPage);
}

TEST_CASE("heap: a request larger than the rest of a segment gets a later segment, alone mapped") {
  const SharedMemory file = SharedMemory::create().value();
  Opened o(file);
  const Extent large = o.take(Window::bytes_of(6) - 5);
  CHECK(large.offset == Window::start_of(6));
  o.at(large);
  CHECK(o.window.mapped() == Window::bytes_of(0) + Window::bytes_of(6));
}

}  // namespace
}  // namespace gc3::core
