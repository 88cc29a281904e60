// What the threads of a block share.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/launch.h"
#include "gc3/runtime/interp/operands.h"

namespace gc3::cuda {

// The changing part of a task. While a block moves a message, it is kept here instead of in every thread's registers.
struct Parked {
  uint64_t tile = 0;
  uint64_t sent = 0;
  uint64_t head_seen = 0;
  uint64_t received = 0;
  uint32_t send_slot = 0;
  uint32_t recv_slot = 0;
  uint32_t step = 0;
};

// The location of a message's lines, and their flag.
struct In {
  const uint8_t* slot = nullptr;
  uint64_t flag = 0;
};
struct Out {
  uint8_t* slot = nullptr;
  uint64_t flag = 0;
};

// What the part of a message that is not moved in whole aligned vectors needs; read from here, it costs the rest of
// the kernel no registers.
struct Remainder {
  interp::Message message;
  const interp::Step* step = nullptr;
  uint64_t total = 0;
  In in;
  Out out;
  uint32_t first = 0;  // vector that is not moved yet
  uint32_t vecs = 0;
};

// Where the local operands of a step are in the first tile, if each is in one piece of memory. Each is as far into its
// chunk in every tile.
struct Located {
  uint8_t* src = nullptr;  // null: the step has none
  uint8_t* dst = nullptr;
  uint64_t room = 0;  // bytes from there on; 0: not in one piece
};

// Places that are written repeatedly come in pairs, used in turn: a thread that writes one knows, by the barrier
// before, that all have read the other.
struct Shared {
  uint64_t seen[2];
  Parked parked[2];
  uint32_t index;       // of the threadblock in the launch
  uint32_t staged;      // whether the steps are here
  uint64_t first_tile;  // of this launch
  interp::Task task;    // its part that does not change
  interp::Region regions[3];
  Remainder remainder;
  interp::Step steps[kStagedSteps];
  interp::Wait waits[kStagedWaits];
  Located located[kStagedSteps];
};

}  // namespace gc3::cuda
