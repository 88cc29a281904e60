#include "gc3/runtime/cpu/companion.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>

namespace gc3::cpu {

Companion::~Companion() {
  if (event_ != -1) close(event_);
}

Companion::During::During(Companion& companion, const std::function<void()>& work) : companion_(companion) {
  if (companion.event_ == -1) companion.event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  companion.over_.store(false, std::memory_order_relaxed);  // the queue of the thread orders it before the work
  done_ = companion.thread_.start([work] {
    work();
    return Status();
  });
}

Companion::During::~During() {
  companion_.over_.store(true, std::memory_order_release);
  eventfd_write(companion_.event_, 1);
  done_.wait();
  eventfd_t count = 0;
  eventfd_read(companion_.event_, &count);
}

}  // namespace gc3::cpu
