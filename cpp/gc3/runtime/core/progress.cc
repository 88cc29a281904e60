#include "gc3/runtime/core/progress.h"

#include <utility>

namespace gc3::core {

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::shared_future<Status> Progress::start(Call call) {
  std::packaged_task<Status()> task(std::move(call));
  std::shared_future<Status> done = task.get_future().share();
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(task));
    ++left_;
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  }
  changed_.notify_one();
  return done;
}

Status Progress::in_turn(Call call) {
  bool idle = false;
  {
    const std::lock_guard lock(mutex_);
    idle = left_ == 0;
  }
  return idle ? call() : start(std::move(call)).get();
}

void Progress::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::packaged_task<Status()> task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task();
    lock.lock();
    --left_;
  }
}

}  // namespace gc3::core
