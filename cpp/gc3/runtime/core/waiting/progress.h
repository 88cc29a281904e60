// Asynchronous calls: run one after the other on a separate thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>

#include "gc3/base/result.h"

namespace gc3::core {

class Progress {
 public:
  using Call = std::function<Status()>;

  Progress();
  ~Progress();  // when the started calls have finished; in a forked process at once
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Fails if the system gives no thread. What a call throws is its failure.
  Result<std::shared_future<Status>> start(Call call);
  // Whether this thread runs a started call; of these.
  static bool inside();
  bool runs_here() const;
  // Whether a started call has not finished yet. acquire: the results of a finished call are visible.
  bool busy() const { return left_.load(std::memory_order_acquire) != 0; }

 private:
  struct Queue;

  std::atomic<std::size_t> left_ = 0;  // started and not finished
  std::mutex mutex_;                   // of queue_
  std::unique_ptr<Queue> queue_;       // with its thread, from the first call on
  pid_t process_;
};

}  // namespace gc3::core
