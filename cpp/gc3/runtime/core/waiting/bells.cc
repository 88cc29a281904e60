#include "gc3/runtime/core/waiting/bells.h"

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

void Bells::wake_sleepers(std::uint32_t mark, bool all) {
  start_to_ring();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const std::atomic_ref awaited(words_[r].value);
    const std::uint32_t seen = r == rank_ ? 0 : awaited.load(std::memory_order_relaxed);
    if (seen == 0 || (!all && ((seen & bit(rank_)) == 0 || (seen & mark) != mark))) continue;
    // The rank that clears the word wakes the sleeper, which reads the word again before it sleeps. Relaxed, because
    // the futex and the fences give the required order.
    const std::uint32_t others = all || (seen & kAny) != 0 ? 0 : ~bit(rank_);
    std::uint32_t before = awaited.fetch_and(others, std::memory_order_relaxed);
    // It has been woken since it was looked at, and awaits any rank now: the next ring would not find this rank's bit.
    if ((before & others & kAny) != 0) {
      before = awaited.exchange(0, std::memory_order_relaxed);
    } else if ((before & others & kRanks) != 0) {
      continue;
    }
    if (before == 0) continue;
    syscall(SYS_futex, &words_[r].value, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
  }
}

void Bells::prepare(std::uint32_t awaited) {
  const std::atomic_ref wanted(words_[ranks_].value);
  if (wanted.load(std::memory_order_relaxed) == 0) wanted.store(1, std::memory_order_relaxed);
  std::atomic_ref(words_[rank_].value).store(awaited, std::memory_order_relaxed);
  prepared_ = awaited;
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
  // A rank that was found to have posted since prepare() may not ring again, so it is awaited no longer. If others are
  // awaited than were announced, the caller checks again first.
  const bool announced = (awaited & ~prepared_) == 0;
  std::uint32_t now = announced ? word.fetch_and(awaited, std::memory_order_relaxed) & awaited : 0;
  // Sleeps until no awaited rank is left in the word, the time is over, or a signal arrives; the caller checks again in
  // all cases.
  for (; (now & kRanks) != 0; now = word.load(std::memory_order_relaxed)) {
    if (syscall(SYS_futex, &words_[rank_].value, FUTEX_WAIT, now, &limit, nullptr, 0) == 0 || errno == EAGAIN) continue;
    in_time = errno != ETIMEDOUT;
    break;
  }
  prepare(awaited);
  return in_time;
}

}  // namespace gc3::core
