// How long a wait lasts: every spin loop regularly checks whether it should stop.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/launch.h"

namespace gc3::cuda {

class WaitLimit {
 public:
  // After a check without progress. True: stop, because a stop was requested or this wait has lasted too long; the
  // others are notified.
  template <class Platform, class AnyLaunch>
  GC3_HOST_DEVICE bool over(Platform& platform, const AnyLaunch& launch) {
    platform.relax();
    if (++looks_ % kLooks != 0) return false;
    if (platform.load_stop(&launch.control->stop) != 0) return true;
    const uint64_t now = platform.nanoseconds();
    if (since_ == 0) since_ = now;
    if (now - since_ < launch.timeout_ns) return false;
    platform.store_stop(&launch.control->stop, static_cast<uint32_t>(Stop::deadline));
    return true;
  }

 private:
  static constexpr uint32_t kLooks = 256;  // the word is in host memory, a microsecond away
  uint32_t looks_ = 0;
  uint64_t since_ = 0;
};

}  // namespace gc3::cuda
