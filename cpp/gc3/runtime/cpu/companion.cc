#include "gc3/runtime/cpu/companion.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "gc3/base/guarded.h"
#include "gc3/base/result.h"
#include "gc3/base/signals.h"

namespace gc3::cpu {

Companion::~Companion() {
  if (event_ == -1) return;
  ends_.store(true, std::memory_order_relaxed);  // the write orders it before what the thread reads
  eventfd_write(event_, 1);
  // The descriptor stays open for the thread, which ends after this; see serve().
}

void Companion::serve() {
  const int event = event_;
  while (!ends_.load(std::memory_order_relaxed)) {
    int sleep = -1;
    int descriptor = -1;
    {
      const std::lock_guard lock(mutex_);
      if (work_ != nullptr && problem_.ok()) {
        descriptor = work_->descriptor;
        problem_ = guarded([&] {
          // Relaxed: the mutex orders what the threads do; this only says that the other one wants it.
          do sleep = pauses_.load(std::memory_order_relaxed) ? -1 : work_->move();
          while (sleep == 0);
          return Status();
        });
        if (!problem_.ok()) sleep = -1;
      }
      if (pauses_.load(std::memory_order_relaxed)) sleep = -1;  // the other thread may need this core to end the work
    }
    // Also of no work: its end is near, or the next one has begun.
    std::array<pollfd, 2> waiting{{{event, POLLIN, 0}, {descriptor, POLLIN, 0}}};
    poll(waiting.data(), waiting.size(), sleep);
    eventfd_t count = 0;
    if (waiting[0].revents != 0) eventfd_read(event, &count);
  }
  close(event);
}

bool Companion::begin() {
  const SignalsBlocked blocked;
  const auto serving = thread_.start([this] {
    serve();
    return Status();
  });
  return serving.ok();
}

Companion::During::During(Companion& companion, const Work& work) : companion_(companion) {
  if (!work.move) return;
  if (companion.event_ == -1) {
    companion.event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (companion.event_ == -1) return;  // without descriptors, as without threads: nothing moves meanwhile
    if (!companion.begin()) {
      close(std::exchange(companion.event_, -1));
      return;
    }
  }
  companion.pauses_.store(false, std::memory_order_relaxed);
  {
    const std::lock_guard lock(companion.mutex_);
    companion.work_ = &work;
    companion.problem_ = {};
  }
  eventfd_write(companion.event_, 1);
}

Status Companion::During::end() {
  companion_.pauses_.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(companion_.mutex_);
  return std::exchange(companion_.work_, nullptr) == nullptr ? Status() : companion_.problem_;
}

Companion::Pause::Pause(Companion& companion) : companion_(companion) {
  companion.pauses_.store(true, std::memory_order_relaxed);
  lock_ = std::unique_lock(companion.mutex_);
}

Companion::Pause::~Pause() {
  if (companion_.work_ == nullptr) return;
  companion_.pauses_.store(false, std::memory_order_relaxed);
  lock_.unlock();
  eventfd_write(companion_.event_, 1);
}

}  // namespace gc3::cpu
