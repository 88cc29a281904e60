// A thread that goes on with a rank's messages while the thread of its call computes.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>

#include "gc3/base/result.h"
#include "gc3/runtime/core/waiting/progress.h"

namespace gc3::cpu {

class Companion {
 public:
  // Moves what can move. Returns the milliseconds to sleep until it is called again, if `descriptor` does not become
  // readable before; 0: something has moved.
  struct Work {
    std::function<int()> move;
    int descriptor = -1;
  };

  Companion() = default;
  ~Companion();
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;

  // If there is something to move, the other thread does so as long as this exists. The end waits for a move that is
  // under way, and for no sleep: with few cores the other thread may wake up late.
  class During {
   public:
    During(Companion& companion, const Work& work);
    ~During() { static_cast<void>(end()); }
    During(const During&) = delete;
    During& operator=(const During&) = delete;

    // Ends it, and tells why a move has failed, after which there was none.
    Status end();

   private:
    Companion& companion_;
  };

  // The other thread moves nothing as long as this exists, also while there is work for it.
  class Pause {
   public:
    explicit Pause(Companion& companion);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Companion& companion_;
    std::unique_lock<std::mutex> lock_;
  };

 private:
  bool begin();  // false: the system gives no thread
  void serve();

  std::mutex mutex_;  // of work_ and problem_; held by a move
  const Work* work_ = nullptr;
  Status problem_;
  std::atomic<bool> pauses_{true};  // no move is to begin
  std::atomic<bool> ends_{false};
  int event_ = -1;         // wakes the thread
  core::Progress thread_;  // the last member, because it uses the rest
};

}  // namespace gc3::cpu
