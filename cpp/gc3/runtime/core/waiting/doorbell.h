// Where the threads of a process sleep that wait for messages of other processes of the job, whatever group they are
// of.
//
// Unlike Bells, several threads can sleep at once, and a sender executes no fence: it rings only if it sees a sleeper.
// If a sleeper comes between the sender's post and the look that follows, each may miss the other, because a processor
// may look before its post is visible. So the first sleep of a wait is short, and all are bounded.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>

namespace gc3::core {

// In shared memory, initially zero.
struct alignas(64) Doorbell {
  std::uint32_t rung;      // the word of the futex: how often it was rung
  std::uint32_t sleepers;  // threads that will look at `rung` before they sleep

  // After a post. relaxed: see above.
  void ring() {
    if (std::atomic_ref(sleepers).load(std::memory_order_relaxed) == 0) return;
    std::atomic_ref(rung).fetch_add(1, std::memory_order_release);  // after the post
    syscall(SYS_futex, &rung, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
  }

  // The order of calls: announce(); look again for what is awaited; then sleep() with the value it gave, and so on; at
  // last withdraw(). A ring after announce() ends the sleep.
  std::uint32_t announce() {
    std::atomic_ref(sleepers).fetch_add(1, std::memory_order_seq_cst);  // before the look that follows
    return std::atomic_ref(rung).load(std::memory_order_acquire);
  }
  // The value for the next sleep. acquire: what was posted before the ring is visible.
  std::uint32_t sleep(std::uint32_t seen, std::chrono::nanoseconds at_most) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
    const timespec limit{seconds.count(), (at_most - seconds).count()};
    syscall(SYS_futex, &rung, FUTEX_WAIT, seen, &limit, nullptr, 0);
    return std::atomic_ref(rung).load(std::memory_order_acquire);
  }
  void withdraw() { std::atomic_ref(sleepers).fetch_sub(1, std::memory_order_relaxed); }
};

}  // namespace gc3::core
