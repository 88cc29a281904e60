// Shared by the protocols: credits, the position in the ring of slots, flags, and the order in which memory becomes
// visible.
//
// A flag identifies the message in a slot and, by the run's tag, the call it belongs to, so a message of another call
// is never received. Ranks that make different calls wait for each other and read no wrong data; the code that watches
// waits then reports the difference.
//
// `Block::await(counter, value)` reads the counter with acquire order and returns the value. On a CPU it reads once; on
// a device it spins until `value` is reached or the run is aborted. `Block::post(counter, value)` stores with release
// order, after all reads and writes of this threadblock; only one thread of a block does so. A Block may have
// `give_back(counter, value)`, which orders only its reads: a credit promises no more, see verify/races.h.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/layout.h"

namespace gc3::interp {

// A free slot for the next message. The acquire pairs with the receiver's post: its reads of the slot's former content
// precede our writes.
template <class Block>
GC3_HOST_DEVICE bool credit_ready(Block& block, const Run& run, SendEnd& end) {
  if (end.step < end.head_seen + run.slots) return true;
  end.head_seen = block.await(end.head, end.step + 1 - run.slots);
  return end.step < end.head_seen + run.slots;
}

GC3_HOST_DEVICE void next_slot(const Run& run, SendEnd& end) {
  ++end.step;
  end.slot = end.slot + 1 == run.slots ? 0 : end.slot + 1;
}

// The flag of a message: its number plus one, with the tag in the upper bits.
GC3_HOST_DEVICE uint64_t flag_of(const Run& run, uint64_t step) {
  return run.tag << 48U | ((step + 1) & 0xffffffffffffU);
}

// Returns the slot. The release orders our reads of the slot before the sender's next writes.
template <class Block>
GC3_HOST_DEVICE void release_slot(Block& block, const Run& run, RecvEnd& end) {
  ++end.step;
  end.slot = end.slot + 1 == run.slots ? 0 : end.slot + 1;
  if constexpr (requires { block.give_back(end.head, end.step); }) {
    block.give_back(end.head, end.step);
  } else {
    block.post(end.head, end.step);
  }
}

GC3_HOST_DEVICE uint8_t* slot_of(const Run& run, const SendEnd& end) { return end.slots + end.slot * run.slot_stride; }
GC3_HOST_DEVICE const uint8_t* slot_of(const Run& run, const RecvEnd& end) {
  return end.slots + end.slot * run.slot_stride;
}

}  // namespace gc3::interp
