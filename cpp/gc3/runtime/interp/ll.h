// The LL protocol: 16-byte lines {u32 data, u32 flag, u32 data, u32 flag}. Each half is stored and loaded as one 8-byte
// word, so data and flag arrive together and no further order is needed. The flag of message n is n + 1, modulo 2^16,
// below the run's tag.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/fifo.h"

namespace gc3::interp {

struct LL {
  static constexpr uint64_t kLineBytes = 16;
  static constexpr uint64_t kLineData = 8;
  // The piece that a thread moves at a time: on a CPU whole lines of both LL (240) and LL128 (16).
  template <class Block>
  GC3_HOST_DEVICE static uint64_t piece_bytes(uint64_t) {
    return Block::kLLPiece;
  }

  static constexpr uint64_t kPeriod = 1U << 16U;  // of flags with one tag
  static_assert(kPeriod / 2 > 2 * kMaxSlots);

  GC3_HOST_DEVICE static uint64_t flag(const Run& run, uint64_t step) {
    return static_cast<uint32_t>(run.tag << 16U | ((step + 1) & (kPeriod - 1)));  // a device then keeps 32 bits of it
  }

  template <class Block>
  GC3_HOST_DEVICE static bool input_ready(Block&, const Run&, const RecvEnd&) {
    return true;  // arrival is tested line by line
  }

  // Unpacks [offset, offset + bytes) of the message into `stage`; null if a line has not arrived.
  template <class Block>
  GC3_HOST_DEVICE static const uint8_t* load(Block& block, const Run& run, const RecvEnd& end, uint64_t offset,
                                             uint64_t bytes, uint8_t* stage) {
    const uint64_t* line = reinterpret_cast<const uint64_t*>(slot_of(run, end)) + offset / kLineData * 2;
    const uint64_t want = flag(run, end.step);
    if constexpr (requires { block.load_lines(stage, line, uint64_t{}, want); }) {
      return block.load_lines(stage, line, (bytes + kLineData - 1) / kLineData, want) ? stage : nullptr;
    }
    for (uint64_t at = 0; at < bytes; at += kLineData, line += 2) {
      uint64_t low = 0;
      uint64_t high = 0;
      if (!block.await_line(line, want, &low, &high)) return nullptr;
      block.put_word(stage + at, (low & 0xffffffffU) | (high << 32U));
    }
    return stage;
  }
  GC3_HOST_DEVICE static uint8_t* target(const Run&, const SendEnd&, uint64_t, uint8_t* stage) { return stage; }
  template <class Block>
  GC3_HOST_DEVICE static void store(Block& block, const Run& run, const SendEnd& end, uint64_t offset, uint64_t bytes,
                                    uint8_t* stage) {
    for (uint64_t i = bytes; i % kLineData != 0; ++i) stage[i] = 0;  // the rest of the last line
    uint64_t* line = reinterpret_cast<uint64_t*>(slot_of(run, end)) + offset / kLineData * 2;
    if constexpr (requires { block.store_lines(line, stage, uint64_t{}, uint64_t{}); }) {
      return block.store_lines(line, stage, (bytes + kLineData - 1) / kLineData, flag(run, end.step));
    }
    const uint64_t mark = flag(run, end.step) << 32U;
    for (uint64_t at = 0; at < bytes; at += kLineData, line += 2) {
      const uint64_t data = block.get_word(stage + at);
      block.store_word(line, (data & 0xffffffffU) | mark);
      block.store_word(line + 1, (data >> 32U) | mark);
    }
  }

  // Once per half period of the ring, every line of the slot gets the current flag. Otherwise a line that no message
  // has used for a whole period would hold the flag of a future message.
  template <class Block>
  GC3_HOST_DEVICE static void post(Block& block, const Run& run, SendEnd& end) {
    if (end.step % (kPeriod / 2) >= kPeriod / 2 - run.slots) {
      uint64_t* line = reinterpret_cast<uint64_t*>(slot_of(run, end));
      const uint64_t mark = flag(run, end.step) << 32U;
      for (uint64_t i = block.thread(); i < run.slot_bytes / 8; i += block.threads()) {
        block.store_word(line + i, (block.load_word(line + i) & 0xffffffffU) | mark);
      }
    }
    next_slot(run, end);
  }
};

}  // namespace gc3::interp
