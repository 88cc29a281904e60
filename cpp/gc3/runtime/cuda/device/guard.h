// The guard of a launch whose messages copy engines move: one thread beside the streams, see ../copy_lanes.h.
//
// A stream that waits for a value cannot be interrupted, and looks at no clock. The guard does both for it. If a stop
// is requested, or no lane has moved for too long, it first marks what its ranks send from then on as spoilt, so that
// no other rank takes it for data. Then it stores what the lanes wait for until they have come to their ends.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/launch.h"

namespace gc3::cuda {

// A lane is the stream that executes the steps of a threadblock. In device memory; the stream writes where it is.
struct Lane {
  uint64_t place = 0;     // see place_of
  uint64_t finished = 0;  // the last launch that it has finished
  uint64_t stand = 0;     // index into Guard::stands
};

inline constexpr uint32_t kOfStep = 8;  // in Stand::waiting: Stand::wait counts the dependencies of the step

// Where a lane is: a tile, a step, and what it waits for there (interp::Waiting; of a dependency, which one).
GC3_HOST_DEVICE uint64_t place_of(uint64_t tile, uint64_t step, uint64_t waiting, uint64_t wait = 0) {
  return (tile & 0xfffffffU) << 36U | (step & 0xfffffU) << 16U | (wait & 0xfffU) << 4U | kOfStep | waiting;
}

// What the lanes of a rank wait for: counters, which only grow, tags, and the word of each slot that says whether its
// message is spoilt. See ../copy_fifos.h.
struct GuardedRank {
  uint64_t* words = nullptr;
  uint32_t counters = 0;
  uint32_t slots = 0;
};
inline constexpr uint64_t kReleased = uint64_t{1} << 62U;  // above every counter
inline constexpr uint64_t kSpoilt = 1;

struct Guard {
  Lane* lanes;
  const GuardedRank* ranks;
  Halt* halt;
  Stand* stands;
  Control* control;
  uint64_t launch;  // its number
  uint64_t tag;
  uint64_t timeout_ns;
  uint32_t lane_count;
  uint32_t rank_count;
};

// Returns once all lanes have finished the launch.
template <class Platform>
GC3_HOST_DEVICE void watch_lanes(Platform& platform, const Guard& guard) {
  constexpr uint32_t kLooks = 64;  // at the lanes, between two at the word in host memory
  bool stopped = platform.load_stop(&guard.halt->halted) != 0;
  uint64_t seen = 0;
  uint64_t since = 0;
  for (uint32_t looks = 1;; ++looks) {
    uint64_t places = 0;
    bool finished = true;
    for (uint32_t l = 0; l < guard.lane_count; ++l) {
      const bool done = platform.load_acquire(&guard.lanes[l].finished, true) >= guard.launch;
      finished = finished && done;
      places = places * 31 + platform.load_acquire(&guard.lanes[l].place, true) + (done ? 1 : 0);
    }
    if (finished) return;
    platform.relax();
    if (stopped) {
      for (uint32_t r = 0; r < guard.rank_count; ++r) {
        const GuardedRank& rank = guard.ranks[r];
        uint64_t* word = rank.words;
        platform.store_release(word++, kSpoilt, true);
        for (uint32_t i = 0; i < rank.counters; ++i) platform.store_release(word++, kReleased, true);
        for (uint32_t i = 0; i < rank.slots; ++i) platform.store_release(word++, guard.tag, true);
        for (uint32_t i = 0; i < rank.slots; ++i) platform.store_release(word++, 0, true);
      }
      continue;
    }
    if (looks % kLooks != 0) continue;
    const uint64_t now = platform.nanoseconds();
    if (since == 0 || places != seen) {
      seen = places;
      since = now;
    }
    stopped = platform.load_stop(&guard.control->stop) != 0;
    if (!stopped && now - since >= guard.timeout_ns) {
      platform.store_stop(&guard.control->stop, static_cast<uint32_t>(Stop::deadline));
      stopped = true;
    }
    if (!stopped) continue;
    platform.store_stop(&guard.halt->halted, 1);
    for (uint32_t l = 0; l < guard.lane_count; ++l) {
      const Lane& lane = guard.lanes[l];
      if (platform.load_acquire(&lane.finished, true) >= guard.launch) continue;
      const uint64_t place = platform.load_acquire(&lane.place, true);
      guard.stands[lane.stand] = {place >> 36U, static_cast<uint32_t>(place >> 16U & 0xfffffU),
                                  static_cast<uint32_t>(place >> 4U & 0xfffU), static_cast<uint32_t>(place & 0xfU), 1};
    }
  }
}

}  // namespace gc3::cuda
