// The flat records of the interpreter: plain structs over raw pointers, the same on a host and on a device. `Plan`
// fills in the part that a program determines, an engine the memory.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/device.h"

namespace gc3::interp {

// A copy of the opcode table, so that device code needs nothing of the host's ir::Program.
enum class Op : uint8_t {
#define GC3_OPCODE(name, xml, receives, sends, reads_local, writes_local, reduces, doc) name,
#include "gc3/ir/opcodes.def"
#undef GC3_OPCODE
};

inline constexpr uint32_t kCacheLine = 128;       // two 64-byte lines: adjacent-line prefetch pairs them
inline constexpr uint32_t kMaxSlots = 1U << 12U;  // per connection; bounds how long a flag must stay unique

GC3_HOST_DEVICE uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// A counter that one side writes and another polls, on a separate line so that neither slows down other accesses.
struct alignas(kCacheLine) Counter {
  uint64_t value = 0;
};

// Consecutive chunks of a buffer; `chunk` = block * chunks per block + index, stored as both so that no division is
// needed.
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

// A resolved dependency: threadblock `tb` of the rank has `step_count` steps, and `steps` of them must be finished.
struct Wait {
  uint32_t tb = 0;
  uint32_t step_count = 0;
  uint32_t steps = 0;
};

// A rank's buffer in this run. Elements of block b start at b * block_elems; memory past the end of a block is not
// ours.
struct Region {
  uint8_t* base = nullptr;
  uint64_t block_elems = 0;
  uint32_t chunks = 0;   // per block
  uint32_t regular = 0;  // every chunk is whole, so chunk c starts at c * chunk_elems and needs no clamping
  uint32_t streams = 0;  // so large that received data should bypass the caches
};

// The two ends of a connection. The slots and `arrivals` are in the receiver's memory, `head` in the sender's. Steps
// count messages since the engine was made: they never restart, so a flag in a slot never repeats.
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

// The cause of a threadblock's wait, for reports of a deadlock or a timeout.
enum class Waiting : uint8_t { nothing, dependency, input, credit };

// A threadblock: its steps and its progress. It can be resumed wherever it can wait.
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
  // Per slot of `send`, the bytes of the message in it. For messages that a proxy sends (runtime/cuda/proxy.h); else
  // null. Last, because with other offsets before it some kernels of LL spill on sm_100.
  uint64_t* lengths = nullptr;
};

// The part of a run that is the same for all threadblocks.
struct Run {
  uint64_t chunk_elems = 0;  // nominal length of a chunk
  uint64_t tile_elems = 0;
  uint64_t tiles = 0;
  uint64_t first_tile = 0;  // tiles of all earlier runs: semaphores continue to count and never restart
  uint64_t slot_stride = 0;
  uint64_t slot_bytes = 0;  // wire bytes of a slot that lines may use
  uint64_t tag = 0;         // 16 bits on which sender and receiver of every message agree, see fifo.h
  uint32_t slots = 0;
  uint32_t elem_bytes = 0;
  uint32_t regular = 0;  // every chunk is whole in every region
};

}  // namespace gc3::interp
