// Starts the workers of a timed run at the same time, so that the time does not include waking them.
#pragma once

#include <atomic>
#include <cstdint>

#include "gc3/runtime/cpu/idle.h"

namespace gc3::cpu {

class StartBarrier {
 public:
  explicit StartBarrier(std::uint32_t workers) : workers_(workers), spins_(spins_for(workers)) {}

  // Discards arrivals of a run that was given up. No worker may be waiting.
  void reset() { arrived_.store(0, std::memory_order_relaxed); }

  // Returns when all workers have arrived, or `stop` is set. Never sleeps, because waking would be part of the time.
  void arrive_and_wait(const std::atomic<bool>& stop) {
    const std::uint32_t turn = turn_.load(std::memory_order_acquire);
    // The last worker acquires what the others did before, and its release makes all of it visible to them.
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == workers_) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      return;
    }
    Backoff backoff(spins_);
    while (turn_.load(std::memory_order_acquire) == turn && !stop.load(std::memory_order_relaxed)) backoff.rest();
  }

 private:
  std::uint32_t workers_;
  std::uint32_t spins_;
  alignas(128) std::atomic<std::uint32_t> arrived_{0};
  alignas(128) std::atomic<std::uint32_t> turn_{0};
};

}  // namespace gc3::cpu
