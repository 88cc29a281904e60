// The lock of what a communicator knows of its calls.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "gc3/base/after_fork.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/result.h"

namespace gc3::comm {

class CallLock {
 public:
  // Fails in the thread that makes a program with it, see Making, and where a fork would wait for a thread that it does
  // not have.
  Status take(std::unique_lock<std::mutex>& lock) {
    GC3_CHECK(check_maker());
    lock = std::unique_lock(mutex_, std::defer_lock);
    return gc3::take(lock, process_);
  }

  Status check_maker() const {
    if (maker_.load(std::memory_order_relaxed) != std::this_thread::get_id()) return {};
    return Diagnostic(ErrorCode::NestedCall, "the program of the outer call is being made");
  }

  bool here() const { return getpid() == process_; }
  Status check_here() const {
    if (here()) return {};
    return of_another_process(process_);
  }

  // Whoever has the lock makes a program as long as this lives. Python compiles it, and may run a signal handler
  // meanwhile. Relaxed: only the thread itself finds its own number.
  class Making {
   public:
    explicit Making(CallLock& lock) : maker_(lock.maker_) {
      maker_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }
    ~Making() { maker_.store({}, std::memory_order_relaxed); }
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

   private:
    std::atomic<std::thread::id>& maker_;
  };

 private:
  const pid_t process_ = getpid();
  std::atomic<std::thread::id> maker_;
  std::mutex mutex_;
};

}  // namespace gc3::comm
