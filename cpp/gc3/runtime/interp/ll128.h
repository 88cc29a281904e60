// The LL128 protocol: 128-byte lines of 120 data bytes and an 8-byte flag of the message. The flag is stored last with
// release order and loaded first with acquire order, so a line whose flag has arrived is complete.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/fifo.h"

namespace gc3::interp {

struct LL128 {
  static constexpr uint64_t kLineBytes = 128;
  static constexpr uint64_t kLineData = 120;
  static constexpr uint64_t kFlagWord = 15;

  template <class Block>
  GC3_HOST_DEVICE static uint64_t piece_bytes(uint64_t) {
    return Block::kLL128Piece;
  }

  template <class Block>
  GC3_HOST_DEVICE static bool input_ready(Block&, const Run&, const RecvEnd&) {
    return true;  // arrival is tested line by line
  }

  // Unpacks [offset, offset + bytes) of the message into `stage`; null if a line has not arrived.
  template <class Block>
  GC3_HOST_DEVICE static const uint8_t* load(Block& block, const Run& run, const RecvEnd& end, uint64_t offset,
                                             uint64_t bytes, uint8_t* stage) {
    const uint8_t* line = slot_of(run, end) + offset / kLineData * kLineBytes;
    const uint64_t flag = flag_of(run, end.step);
    for (uint64_t at = 0; at < bytes; at += kLineData, line += kLineBytes) {
      if (!block.await_flag(reinterpret_cast<const uint64_t*>(line) + kFlagWord, flag)) return nullptr;
      copy_line(block, stage + at, line, bytes - at);
    }
    return stage;
  }
  GC3_HOST_DEVICE static uint8_t* target(const Run&, const SendEnd&, uint64_t, uint8_t* stage) { return stage; }
  template <class Block>
  GC3_HOST_DEVICE static void store(Block& block, const Run& run, const SendEnd& end, uint64_t offset, uint64_t bytes,
                                    uint8_t* stage) {
    uint8_t* line = slot_of(run, end) + offset / kLineData * kLineBytes;
    const uint64_t flag = flag_of(run, end.step);
    for (uint64_t at = 0; at < bytes; at += kLineData, line += kLineBytes) {
      copy_line(block, line, stage + at, bytes - at);
      block.store_flag(reinterpret_cast<uint64_t*>(line) + kFlagWord, flag);
    }
  }

  // A whole line is copied with a length the compiler knows.
  template <class Block>
  GC3_HOST_DEVICE static void copy_line(Block& block, uint8_t* to, const uint8_t* from, uint64_t rest) {
    if (rest >= kLineData) {
      block.copy(to, from, kLineData);
    } else {
      block.copy(to, from, rest);
    }
  }

  template <class Block>
  GC3_HOST_DEVICE static void post(Block&, const Run& run, SendEnd& end) {
    next_slot(run, end);  // no counter to post: the flags in the lines announce the data
  }
};

}  // namespace gc3::interp
