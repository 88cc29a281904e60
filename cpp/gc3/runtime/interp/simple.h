// The Simple protocol: a slot has only data. Each slot has a flag for its message, which is stored separately.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/fifo.h"

namespace gc3::interp {

struct Simple {
  static constexpr uint64_t kLineBytes = 1;
  static constexpr uint64_t kLineData = 1;
  static constexpr uint64_t kStageBytes = 1;  // data is moved directly between slot and buffer

  template <class Block>
  GC3_HOST_DEVICE static uint64_t piece_bytes(uint64_t message_bytes) {
    return Block::kSimplePiece == 0 ? message_bytes : Block::kSimplePiece;
  }

  // The acquire pairs with the sender's post: the message's data is visible once its flag is.
  template <class Block>
  GC3_HOST_DEVICE static bool input_ready(Block& block, const Run& run, const RecvEnd& end) {
    return block.await_flag(end.arrivals + end.slot, flag_of(run, end.step));
  }

  template <class Block>
  GC3_HOST_DEVICE static const uint8_t* load(Block&, const Run& run, const RecvEnd& end, uint64_t offset, uint64_t,
                                             uint8_t*) {
    return slot_of(run, end) + offset;
  }
  GC3_HOST_DEVICE static uint8_t* target(const Run& run, const SendEnd& end, uint64_t offset, uint8_t*) {
    return slot_of(run, end) + offset;
  }
  template <class Block>
  GC3_HOST_DEVICE static void store(Block&, const Run&, const SendEnd&, uint64_t, uint64_t, uint8_t*) {}

  template <class Block>
  GC3_HOST_DEVICE static void post(Block& block, const Run& run, SendEnd& end) {
    if (block.thread() == 0)
      block.store_flag(end.arrivals + end.slot, flag_of(run, end.step));  // release: the data first
    next_slot(run, end);
  }
};

}  // namespace gc3::interp
