// The flat records the interpreter works on: plain structs over raw pointers, the same on a host and on a device.
// `Plan` fills in what a program fixes, an engine fills in the memory.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/device.h"

namespace gc3::interp {

// The opcode table once more, so that device code needs nothing of the host's ir::Program.
enum class Op : uint8_t {
#define GC3_OPCODE(name, xml, receives, sends, reads_local, writes_local, reduces, doc) name,
#include "gc3/ir/opcodes.def"
#undef GC3_OPCODE
};

inline constexpr uint32_t kCacheLine = 128;       // two 64-byte lines: adjacent-line prefetch pairs them
inline constexpr uint32_t kMaxSlots = 1U << 12U;  // per connection; bounds how long a flag must stay unique

GC3_HOST_DEVICE uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// A counter that one side writes and another polls, alone on its line so that neither slows anything else down.
struct alignas(kCacheLine) Counter {
  uint64_t value = 0;
};

// A run of chunks of a buffer; `chunk` = block * chunks per block + index, kept apart so that nothing divides.
struct Operand {
  uint32_t buffer = 0;  // 0 input, 1 output, 2 scratch
  uint32_t chunk = 0;
  uint32_t block = 0;
  uint32_t index = 0;
};

// One decoded instruction.
struct Step {
  Op opcode = Op::nop;
  uint8_t publishes = 0;  // some dependency names this step
  uint8_t one_block = 1;  // every local operand lies within one block
  uint32_t count = 0;
  uint32_t wait_begin = 0;
  uint32_t wait_count = 0;
  Operand src;
  Operand dst;
};

// A dependency, resolved: threadblock `tb` of the rank has `step_count` steps, and `steps` of them must be finished.
struct Wait {
  uint32_t tb = 0;
  uint32_t step_count = 0;
  uint32_t steps = 0;
};

// A rank's buffer in this run. Elements of block b start at b * block_elems; what lies past a block's end is not ours.
struct Region {
  uint8_t* base = nullptr;
  uint64_t block_elems = 0;
  uint32_t chunks = 0;   // per block
  uint32_t regular = 0;  // every chunk is whole, so chunk c starts at c * chunk_elems and needs no clamping
  uint32_t streams = 0;  // so large that received data had better not displace the caches' content
};

// The two ends of a connection. The slots and `arrivals` lie with the receiver, `head` with the sender. Steps count
// messages since the engine was made: they never restart, so a flag in a slot never repeats.
struct SendEnd {
  uint64_t* arrivals = nullptr;   // per slot, the flag of the message in it (Simple)
  const Counter* head = nullptr;  // messages the receiver has taken out
  uint8_t* slots = nullptr;
  uint64_t step = 0;       // messages sent
  uint64_t head_seen = 0;  // the last value read of *head
  uint32_t slot = 0;       // step % slots
};
struct RecvEnd {
  const uint64_t* arrivals = nullptr;
  Counter* head = nullptr;
  const uint8_t* slots = nullptr;
  uint64_t step = 0;
  uint32_t slot = 0;
};

// What a threadblock waits for; kept for the report of a deadlock or a passed deadline.
enum class Waiting : uint8_t { nothing, dependency, input, credit };

// A threadblock: what it executes and how far it has come. Resumable anywhere a wait can happen.
struct alignas(kCacheLine) Task {
  const Step* steps = nullptr;
  const Wait* waits = nullptr;
  const Region* regions = nullptr;  // [3], of the rank
  Counter* semaphores = nullptr;    // of the rank's threadblocks
  uint32_t step_count = 0;
  uint32_t rank = 0;
  uint32_t tb = 0;
  SendEnd send;
  RecvEnd recv;

  uint64_t tile = 0;
  uint64_t offset = 0;  // bytes of the current message already moved (LL, LL128)
  uint32_t step = 0;
  uint32_t wait = 0;  // the dependency waited for, in waits
  Waiting waiting = Waiting::nothing;
};

// What one run fixes for all threadblocks.
struct Run {
  uint64_t chunk_elems = 0;  // nominal length of a chunk
  uint64_t tile_elems = 0;
  uint64_t tiles = 0;
  uint64_t first_tile = 0;  // tiles of all earlier runs: semaphores count on and never restart
  uint64_t slot_stride = 0;
  uint64_t slot_bytes = 0;  // wire bytes of a slot that lines may use
  uint64_t tag = 0;         // 16 bits on which sender and receiver of every message agree, see fifo.h
  uint32_t slots = 0;
  uint32_t elem_bytes = 0;
  uint32_t regular = 0;  // every chunk is whole in every region
};

}  // namespace gc3::interp
