// A thread that goes on with a rank's messages while the thread of its call computes.
#pragma once

#include <atomic>
#include <functional>
#include <future>

#include "gc3/base/result.h"
#include "gc3/runtime/core/waiting/progress.h"

namespace gc3::cpu {

class Companion {
 public:
  Companion() = default;
  ~Companion();
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;

  // Does `work` in the other thread, as long as this exists. It has to return soon after is_over().
  class During {
   public:
    During(Companion& companion, const std::function<void()>& work);
    ~During();
    During(const During&) = delete;
    During& operator=(const During&) = delete;

   private:
    Companion& companion_;
    std::shared_future<Status> done_;
  };

  // acquire: pairs with the release of ~During.
  bool is_over() const { return over_.load(std::memory_order_acquire); }
  // Readable when it is over; -1 if the system has refused it.
  int descriptor() const { return event_; }

 private:
  std::atomic<bool> over_{false};
  int event_ = -1;  // made when it is first needed
  core::Progress thread_;
};

}  // namespace gc3::cpu
