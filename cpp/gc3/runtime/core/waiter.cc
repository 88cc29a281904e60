#include "gc3/runtime/core/waiter.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace gc3::core {
namespace {

using std::chrono::microseconds;

constexpr std::uint32_t kYieldsPerLook = 32;  // at the clock
constexpr microseconds kAwake{2'000};         // a later peer costs the inaccuracy of a sleep
constexpr microseconds kLongestSleep{1'000};
constexpr microseconds kBetweenChecks{10'000};

}  // namespace

bool Waiter::yield() {
  sched_yield();
  const std::uint32_t yields = looks_ - spins_;
  if (yields % kYieldsPerLook != 0) return true;
  const Clock::time_point now = Clock::now();
  if (yields == kYieldsPerLook) {
    since_ = now;
    looked_after_ = now;
    return true;
  }
  const auto waited = now - since_;
  if (now - looked_after_ > kBetweenChecks) {
    looked_after_ = now;
    Status status = group_.look_after(std::chrono::duration<double>(waited).count(), interrupted_);
    if (!status.ok()) {
      problem_ = std::move(status.error());
      return false;
    }
  }
  if (waited > kAwake) {
    // A fraction of the time waited, so that the wait ends soon after its cause; then read the clock again.
    std::this_thread::sleep_for(std::min<Clock::duration>(waited / 8, kLongestSleep));
    looks_ = spins_ + 2 * kYieldsPerLook - 1;
  }
  return true;
}

}  // namespace gc3::core
