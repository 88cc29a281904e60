#include "gc3/runtime/core/waiting/progress.h"

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "gc3/base/guarded.h"
#include "gc3/base/threads.h"

namespace gc3::core {
namespace {

thread_local const Progress* here = nullptr;  // whose started calls this thread runs

}  // namespace

struct Progress::Queue {
  struct Started {
    Call call;
    std::promise<Status> done;
  };

  explicit Queue(Progress& progress) : of(progress) {}
  ~Queue() {
    if (!thread.joinable()) return;
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_one();
    thread.join();
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void serve() {
    here = &of;
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || !waiting.empty(); });
      if (waiting.empty()) return;
      Started next = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      Status status = guarded(next.call);
      next.call = nullptr;  // its resources are released before anyone is notified
      of.left_.fetch_sub(1, std::memory_order_release);
      next.done.set_value(std::move(status));
      lock.lock();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Started> waiting;
  bool stopping = false;
  Progress& of;
  std::thread thread;  // the last member, because it uses the rest
};

Progress::Progress() : process_(getpid()) {}

Progress::~Progress() {
  // A fork has no such thread. Its lock and condition are in an unknown state and cannot be destroyed.
  if (getpid() != process_) static_cast<void>(queue_.release());
}

bool Progress::inside() { return here != nullptr; }
bool Progress::runs_here() const { return here == this; }

Result<std::shared_future<Status>> Progress::start(Call call) {
  Queue::Started started{std::move(call), {}};
  std::shared_future<Status> done = started.done.get_future().share();
  const std::lock_guard lock(mutex_);
  if (queue_ == nullptr) {
    auto made = std::make_unique<Queue>(*this);
    GC3_ASSIGN(made->thread, start_thread("the thread of started calls", [queue = made.get()] { queue->serve(); }));
    queue_ = std::move(made);
  }
  left_.fetch_add(1, std::memory_order_relaxed);  // the lock of the queue orders it before the call
  {
    const std::lock_guard queue_lock(queue_->mutex);
    queue_->waiting.push_back(std::move(started));
  }
  queue_->changed.notify_one();
  return done;
}

}  // namespace gc3::core
