#include "gc3/runtime/cpu/worker_pool.h"

#include <doctest/doctest.h>

#include <atomic>
#include <new>
#include <thread>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/runtime/core/sharing/cores.h"

namespace gc3::cpu {
namespace {

using core::Cores;

// The cores of each worker of a pool that this thread makes.
std::vector<Cores> cores_of(std::uint32_t workers, bool pin) {
  auto pool = WorkerPool::create(workers, pin);
  REQUIRE(pool.ok());
  std::vector<Cores> seen(workers);
  CHECK(pool.value()->run([&](std::uint32_t worker) { seen[worker] = Cores::own(); }, 1, [] {}).ok());
  return seen;
}

TEST_CASE("a worker that finds no memory ends the run with a message, and the next run is as ever") {
  auto pool = WorkerPool::create(3, false);
  REQUIRE(pool.ok());
  for (int round = 0; round < 2; ++round) {
    std::atomic<bool> stops = false;  // as an engine ends the waits of the others
    const auto job = [&](std::uint32_t worker) {
      if (worker == 1) throw std::bad_alloc();
      while (!stops) std::this_thread::yield();
    };
    const auto tick = [&] { stops = pool.value()->has_failed(); };
    const Status status = pool.value()->run(job, 0.01, tick);
    REQUIRE(!status.ok());
    CHECK(status.error().code == ErrorCode::OutOfMemory);
    CHECK(pool.value()->run([](std::uint32_t) {}, 0.01, [] {}).ok());
    CHECK_FALSE(pool.value()->has_failed());
  }
}

TEST_CASE("workers keep to shares of the cores of the thread that makes them, which keeps all of its own") {
  const Cores all = Cores::own();
  const std::uint32_t count = all.count();
  for (const std::uint32_t workers : {1U, count, count + 1}) {
    const std::vector<Cores> seen = cores_of(workers, true);
    for (std::uint32_t w = 0; w < workers; ++w) CHECK(seen[w] == all.share_of({w, workers}));
    CHECK(Cores::own() == all);
  }
  for (const Cores& own : cores_of(2, false)) CHECK(own == all);
}

TEST_CASE("workers of a thread that is restricted to a core stay there") {
  std::thread([] {
    const Cores first = Cores::own().share_of({0, Cores::own().count()});
    first.keep_here();
    for (const Cores& own : cores_of(3, true)) CHECK(own == first);
  }).join();
}

}  // namespace
}  // namespace gc3::cpu
