// What all calls of a messenger that wait have in common.
#pragma once

#include <chrono>

#include "gc3/runtime/p2p/messenger.h"

namespace gc3::p2p {

using Clock = std::chrono::steady_clock;

// A thread that is in a call, which close() waits for.
class Messenger::Inside {
 public:
  // Under the lock, with which close() begins. relaxed: the lock orders it.
  explicit Inside(Messenger& messenger) : messenger_(messenger) {
    messenger.inside_.fetch_add(1, std::memory_order_relaxed);
  }
  // release: close() comes after everything that the call has done.
  ~Inside() { messenger_.inside_.fetch_sub(1, std::memory_order_release); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Messenger& messenger_;
};

}  // namespace gc3::p2p
