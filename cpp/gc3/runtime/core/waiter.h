// One wait of a rank for its peers: spins if there is a core for each rank, then yields the core, then sleeps, and
// regularly checks the peers.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "gc3/runtime/core/group.h"

namespace gc3::core {

class Waiter {
 public:
  Waiter(Group& group, const Interrupted& interrupted)
      : group_(group), interrupted_(interrupted), spins_(group.spins()) {}

  // Some progress was made.
  void renew() { looks_ = 0; }
  // After a check without progress. False: the wait has ended, see problem().
  bool rest() {
    if (++looks_ > spins_) return yield();
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
    return true;
  }
  Diagnostic& problem() { return *problem_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool yield();

  Group& group_;
  const Interrupted& interrupted_;
  std::uint32_t spins_;
  std::uint32_t looks_ = 0;
  Clock::time_point since_;  // of the first reading of the clock since the last progress
  Clock::time_point looked_after_;
  std::optional<Diagnostic> problem_;
};

}  // namespace gc3::core
