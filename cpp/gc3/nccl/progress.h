// Whether a call of a communicator is in progress: in the thread that makes it, or in one of the overlay's after a call
// of a non-blocking communicator has returned. Several threads may ask; that which ends the communicator waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "gc3/base/result.h"
#include "gc3/nccl/real.h"

namespace gc3::nccl {

// A thread of the overlay, joined by the last one that holds it.
class Worker {
 public:
  template <class Work>
  explicit Worker(Work work) : thread_(std::move(work)) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { thread_.get_id() == std::this_thread::get_id() ? thread_.detach() : thread_.join(); }

 private:
  std::thread thread_;
};

class Progress {
 public:
  // Fails if a call is in progress, or if the communicator has ended.
  Status begin();
  // The call goes on in another thread. Until its end ncclCommGetAsyncError says ncclInProgress.
  void defer();
  void keep(std::shared_ptr<Worker> worker);  // until the next call, or the end of the communicator
  void end(int answer);
  // No call begins any more; waits for the end of the one in progress.
  void close();

  // Fails while a call goes on in another thread.
  Status ready() const { return deferred() ? Status(early()) : Status(); }
  // Of a call that comes before the last one has ended.
  static Diagnostic early();
  // Acquire: whoever sees the end of a call also sees what it has changed.
  bool deferred() const { return deferred_.load(std::memory_order_acquire); }
  // How the last call has ended if that was in another thread; otherwise ncclSuccess.
  int answer();
  bool closed();

 private:
  std::atomic<bool> deferred_{false};
  std::mutex mutex_;  // of the following
  std::condition_variable ended_;
  bool running_ = false;
  bool closed_ = false;
  int answer_ = kSuccess;
  std::shared_ptr<Worker> worker_;
};

}  // namespace gc3::nccl
