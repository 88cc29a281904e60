#include "gc3/runtime/core/bells.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <limits>

namespace gc3::core {

void Bells::start_to_ring() {
  const std::atomic_ref rings(words_[rank_].rings);
  if (rings.load(std::memory_order_relaxed) == 0) rings.store(1, std::memory_order_release);
}

void Bells::wake_sleepers(bool all) {
  start_to_ring();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const std::atomic_ref awaited(words_[r].value);
    const std::uint32_t seen = r == rank_ ? 0 : awaited.load(std::memory_order_relaxed);
    if (seen == 0 || (!all && (seen & bit(rank_)) == 0)) continue;
    // The rank that clears the word wakes the sleeper, which reads the word again before it sleeps. Relaxed, because
    // the futex and the fences give the required order.
    const std::uint32_t others = all || (seen & kAny) != 0 ? 0 : ~bit(rank_);
    const std::uint32_t before = awaited.fetch_and(others, std::memory_order_relaxed);
    if (before == 0 || (before & others) != 0) continue;
    syscall(SYS_futex, &words_[r].value, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
  }
}

void Bells::prepare(std::uint32_t awaited) {
  const std::atomic_ref wanted(words_[ranks_].value);
  if (wanted.load(std::memory_order_relaxed) == 0) wanted.store(1, std::memory_order_relaxed);
  std::atomic_ref(words_[rank_].value).store(awaited, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  sure_ = true;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    if (r == rank_ || (awaited & bit(r)) == 0) continue;
    sure_ = sure_ && std::atomic_ref(words_[r].rings).load(std::memory_order_acquire) != 0;
  }
}

bool Bells::sleep(std::uint32_t awaited, std::chrono::nanoseconds at_most, bool rings) {
  if (rings) ring();
  start_to_ring();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec limit{seconds.count(), (at_most - seconds).count()};
  const std::atomic_ref word(words_[rank_].value);
  bool in_time = true;
  // Sleeps until the word is cleared, the time is over, or a signal arrives; the caller checks again in all cases.
  for (std::uint32_t now = 0; (now = word.load(std::memory_order_relaxed)) != 0;) {
    if (syscall(SYS_futex, &words_[rank_].value, FUTEX_WAIT, now, &limit, nullptr, 0) == 0 || errno == EAGAIN) continue;
    in_time = errno != ETIMEDOUT;
    break;
  }
  prepare(awaited);
  return in_time;
}

}  // namespace gc3::core
