// Lets the workers of a timed run start together, so that the time measured is that of the run and not of waking them.
#pragma once

#include <atomic>
#include <cstdint>

#include "gc3/runtime/cpu/idle.h"

namespace gc3::cpu {

class StartBarrier {
 public:
  explicit StartBarrier(std::uint32_t workers) : workers_(workers) {}

  // Forgets arrivals of a run that was given up; nobody may be waiting.
  void reset() { arrived_.store(0, std::memory_order_relaxed); }

  // Returns when all workers have arrived, or `stop` is set. Never sleeps: a waker would be timed along.
  void arrive_and_wait(const std::atomic<bool>& stop) {
    const std::uint32_t turn = turn_.load(std::memory_order_acquire);
    // The last to arrive has acquired what the others did before, and passes all of it on by its release.
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == workers_) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      return;
    }
    Patience patience(spins_for(workers_));
    while (turn_.load(std::memory_order_acquire) == turn && !stop.load(std::memory_order_relaxed)) patience.rest();
  }

 private:
  std::uint32_t workers_;
  alignas(128) std::atomic<std::uint32_t> arrived_{0};
  alignas(128) std::atomic<std::uint32_t> turn_{0};
};

}  // namespace gc3::cpu
