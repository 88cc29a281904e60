// Work that was started and is not done, such as messages: whoever waits for something else goes on with it meanwhile.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace gc3::core {

class Pending {
 public:
  class Work {
   public:
    // Whether something has moved. Waits for nothing, no lock either.
    virtual bool go_on() = 0;

   protected:
    ~Work() = default;
  };

  // From any thread; not within go_on(). After remove() it is not called any more.
  void add(Work& work) {
    const std::lock_guard lock(mutex_);
    all_.push_back(&work);
  }
  void remove(Work& work) {
    const std::lock_guard lock(mutex_);
    std::erase(all_, &work);
  }

  // Counts the work of which something has been started and is not done. relaxed: a thread that waits looks again.
  void begun() { count_.fetch_add(1, std::memory_order_relaxed); }
  void ended() { count_.fetch_sub(1, std::memory_order_relaxed); }
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

  // Whether something has moved.
  bool go_on() {
    if (!any()) return false;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;  // another thread does it
    bool moved = false;
    for (Work* const work : all_) moved |= work->go_on();
    return moved;
  }

 private:
  std::atomic<std::uint64_t> count_ = 0;
  std::mutex mutex_;  // of all_
  std::vector<Work*> all_;
};

}  // namespace gc3::core
