// How a worker waits: it spins briefly, then yields the core, then sleeps until another worker wakes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "gc3/runtime/core/sharing/cores.h"

namespace gc3::cpu {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Wakes sleeping workers. No wake-up is lost. The sleeper increments the count before it checks for work once more; the
// waking worker makes its progress visible before it reads the count. The two sequentially consistent fences guarantee
// that at least one of them sees the other. The fences order no data (counters and flags do that themselves).
class Doorbell {
 public:
  void ring() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_relaxed) != 0) wake();
  }
  void wake() {
    rings_.fetch_add(1, std::memory_order_release);
    rings_.notify_all();
  }
  // prepare(); check once more; then either cancel() or sleep(ticket).
  std::uint32_t prepare() {
    const std::uint32_t ticket = rings_.load(std::memory_order_acquire);
    sleepers_.fetch_add(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return ticket;
  }
  void cancel() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }
  void sleep(std::uint32_t ticket) {
    rings_.wait(ticket, std::memory_order_acquire);
    cancel();
  }

 private:
  alignas(128) std::atomic<std::uint32_t> rings_{0};
  alignas(128) std::atomic<std::uint32_t> sleepers_{0};
};

// Counts checks without progress. `rest` spins or yields, and returns whether it is time to sleep.
class Backoff {
 public:
  explicit Backoff(std::uint32_t spins) : spins_(spins) {}
  void renew() { looks_ = 0; }
  bool rest() {
    ++looks_;
    if (looks_ <= spins_) {
      relax();
      return false;
    }
    if (looks_ <= spins_ + kYields) {
      std::this_thread::yield();
      return false;
    }
    looks_ = 0;
    return true;
  }

 private:
  static constexpr std::uint32_t kYields = 500;
  std::uint32_t spins_;
  std::uint32_t looks_ = 0;
};

// Spins if each worker has a core; with fewer cores a spin only keeps the awaited worker from running. To be called
// before workers are pinned.
inline std::uint32_t spins_for(std::uint32_t workers) { return workers <= core::Cores::own().count() ? 500 : 0; }

}  // namespace gc3::cpu
