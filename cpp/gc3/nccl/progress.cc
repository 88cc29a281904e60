#include "gc3/nccl/progress.h"

#include "gc3/base/errors/common.h"

namespace gc3::nccl {
Diagnostic Progress::early() {
  return {ErrorCode::BadOption,
          "a call before the last one of a non-blocking communicator has ended: wait until ncclCommGetAsyncError no "
          "longer says ncclInProgress"};
}

Status Progress::begin() {
  std::shared_ptr<Worker> last;  // joined without the lock
  const std::lock_guard lock(mutex_);
  if (closed_) {
    return Diagnostic(ErrorCode::BadOption,
                      "a call of a communicator that has ended: ncclCommAbort, ncclCommDestroy and ncclCommFinalize "
                      "come after the end of the group with its calls");
  }
  if (deferred()) return early();
  if (running_) return Diagnostic(ErrorCode::BadOption, "two threads make calls of a communicator at the same time");
  running_ = true;
  last = std::move(worker_);
  answer_ = kSuccess;
  return {};
}

void Progress::defer() {
  const std::lock_guard lock(mutex_);
  deferred_.store(true, std::memory_order_release);
}

void Progress::keep(std::shared_ptr<Worker> worker) {
  const std::lock_guard lock(mutex_);
  worker_ = std::move(worker);
}

void Progress::end(int answer) {
  const std::lock_guard lock(mutex_);
  if (deferred() && answer != kInProgress) answer_ = answer;  // of a call that NCCL has in progress it says so itself
  running_ = false;
  deferred_.store(false, std::memory_order_release);
  ended_.notify_all();
}

void Progress::close() {
  std::shared_ptr<Worker> last;  // joined without the lock
  std::unique_lock lock(mutex_);
  closed_ = true;
  ended_.wait(lock, [&] { return !running_; });
  last = std::move(worker_);
}

int Progress::answer() {
  const std::lock_guard lock(mutex_);
  return answer_;
}

bool Progress::closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace gc3::nccl
