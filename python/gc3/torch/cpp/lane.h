// The order of a group's calls: one runs at a time. A caller that waits at once runs its call itself; a thread of the
// group runs those that nobody waits for.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace gc3_torch {

// The thread keeps the lane, so the last call may be what drops it.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  // `here`: whether the thread is the caller's own, which Ctrl-C may interrupt: then that is returned. Tasks do not
  // throw.
  using Task = std::function<std::exception_ptr(bool here)>;
  using Clock = std::chrono::steady_clock;

  Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Runs `work` in this thread if no call is running or waiting. A call that is made by the end of another one, in the
  // same thread, comes right after it.
  template <class Work>
  bool run_now(Work work) {
    bool outer = false;
    {
      const std::lock_guard lock(mutex_);
      outer = runner_ != std::this_thread::get_id();
      if (outer && !(runner_ == std::thread::id() && tasks_.empty())) return false;
      runner_ = std::this_thread::get_id();
    }
    try {
      work();
    } catch (...) {
      if (outer) leave();
      throw;
    }
    if (outer) leave();
    return true;
  }

  // Whether this thread is running a call, so that what it makes now is made by the end of that call.
  bool inside() {
    const std::lock_guard lock(mutex_);
    return runner_ == std::this_thread::get_id();
  }

  // Whether no call is running or waiting.
  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return runner_ == std::thread::id() && tasks_.empty();
  }

  // Whether this process is a fork, which has neither the thread nor what other threads would do with the locks.
  bool is_fork() const { return getpid() != process_; }

  // Not in a fork. False: it is stopped. std::system_error if the system gives no thread.
  bool put(Task task) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return false;
      if (!thread_.joinable()) thread_ = std::thread([self = shared_from_this()] { self->serve(); });
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
    return true;
  }

  // Runs tasks until `done`, or until the time has passed: then it returns false. It calls `look` now and then;
  // `count` tells how much of a time counts. Who has a limit leaves the tasks to the thread of the group, because a
  // task may last longer; within a task nobody else can run them. Not in a fork.
  template <class Done, class Look, class Count>
  bool help(Done done, std::optional<Clock::time_point> until, Look look, Count count) {
    constexpr auto kLook = std::chrono::milliseconds(50);
    std::unique_lock lock(mutex_);
    const bool inside = runner_ == std::this_thread::get_id();
    while (!done()) {
      if (!tasks_.empty() && (inside || (!until && runner_ == std::thread::id()))) {
        Task task = take();
        const auto before = std::exchange(runner_, std::this_thread::get_id());
        lock.unlock();
        const std::exception_ptr interrupt = task(true);
        task = nullptr;  // without the lock, because it may release objects of Python
        lock.lock();
        runner_ = before;
        changed_.notify_all();
        if (interrupt != nullptr) std::rethrow_exception(interrupt);
        continue;
      }
      const auto now = Clock::now();
      if (until && now >= *until) return false;
      changed_.wait_until(lock, until ? std::min(*until, now + kLook) : now + kLook);
      lock.unlock();
      look();
      lock.lock();
      const std::chrono::duration<double> looked = Clock::now() - now;
      const std::chrono::duration<double> stopped(looked.count() - count(looked.count()));
      if (until) *until += std::chrono::duration_cast<Clock::duration>(stopped);
    }
    return true;
  }

  // Tells those who wait that a call has ended.
  void tell() {
    {
      const std::lock_guard lock(mutex_);
    }  // nobody is between looking and waiting
    changed_.notify_all();
  }

  // Runs what is left, and ends the thread. In a fork it does nothing.
  void stop() {
    if (is_fork()) return;
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    if (!thread_.joinable()) return;
    if (thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }

 private:
  Task take() {
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }
  void leave() {
    bool waited = false;
    {
      const std::lock_guard lock(mutex_);
      runner_ = std::thread::id();
      waited = !tasks_.empty();
    }
    if (waited) changed_.notify_all();
  }
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return (!tasks_.empty() && runner_ == std::thread::id()) || stopped_; });
      if (tasks_.empty() && stopped_) return;
      if (runner_ != std::thread::id()) {
        changed_.wait(lock);
        continue;
      }
      Task task = take();
      runner_ = std::this_thread::get_id();
      lock.unlock();
      task(false);
      task = nullptr;  // as in `help`
      lock.lock();
      runner_ = std::thread::id();
      changed_.notify_all();
    }
  }

  const pid_t process_ = getpid();
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::thread::id runner_;  // the thread that runs a call
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace gc3_torch
