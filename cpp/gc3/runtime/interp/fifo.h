// What the protocols share: credits, the turn of the ring, flags, and the order in which memory becomes visible.
//
// A flag says which message lies in a slot and, by the run's tag, which call it belongs to: what a rank has sent in
// another call than ours never arrives. Ranks that disagree on what they do wait for each other, read nothing that
// was meant for something else, and are told apart where waits are watched.
//
// `Block::await(counter, value)` reads the counter with acquire order and returns what it saw: on a CPU one look, on a
// device it spins until `value` is reached or the run is aborted. `Block::post(counter, value)` stores with release
// order, after everything this threadblock has read or written; only one thread of a block does so. A Block may have
// `give_back(counter, value)`, which orders what it has read alone: that is all a credit says, see verify/races.h.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/layout.h"

namespace gc3::interp {

// A free slot for the next message. The acquire pairs with the receiver's post: its reads of the slot's former content
// come before our writes.
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

// The flag of a message: its number plus one, and the tag above.
GC3_HOST_DEVICE uint64_t flag_of(const Run& run, uint64_t step) {
  return run.tag << 48U | ((step + 1) & 0xffffffffffffU);
}

// Gives the slot back. The release keeps our reads of the slot before the sender's next writes.
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
