// What a launch hands to the kernel. Plain structs, the same on host and device.
//
// Nothing here changes from one replay of a CUDA graph to the next: what goes on from launch to launch (how many
// messages a connection has carried, how many tiles a threadblock has done) lies in device memory, in Progress.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/layout.h"

namespace gc3::cuda {

// Ranks of one launch; their buffers are in the kernel's arguments, of which there are 4096 bytes at most.
inline constexpr uint32_t kMaxRanks = 128;
// Threads of a block, and blocks that a multiprocessor must be able to hold.
inline constexpr uint32_t kThreads = 512;
inline constexpr uint32_t kBlocksPerMultiprocessor = 2;
// Steps of a threadblock that are copied into shared memory; longer lists are read where they are.
inline constexpr uint32_t kStagedSteps = 128;

// A threadblock as the program fixes it. In device memory.
struct Threadblock {
  const interp::Step* steps = nullptr;
  const interp::Wait* waits = nullptr;
  interp::Counter* semaphores = nullptr;  // of the rank's threadblocks
  uint64_t* send_arrivals = nullptr;      // the ends of its connections, see interp::SendEnd
  const interp::Counter* send_head = nullptr;
  uint8_t* send_slots = nullptr;
  const uint64_t* recv_arrivals = nullptr;
  interp::Counter* recv_head = nullptr;
  const uint8_t* recv_slots = nullptr;
  uint32_t step_count = 0;
  uint32_t rank = 0;   // index into Launch::buffers
  uint32_t tb = 0;     // within the rank
  uint32_t stand = 0;  // index into Launch::stands
};

// How far a threadblock has come in all launches so far. In device memory; its own block alone reads and writes it.
struct Progress {
  uint64_t tiles = 0;
  uint64_t sent = 0;
  uint64_t head_seen = 0;
  uint64_t received = 0;
  uint32_t send_slot = 0;
  uint32_t recv_slot = 0;
};

// In pinned host memory: why everything stops. Who waits looks at it; once set it stays until the engine starts afresh.
enum class Stop : uint32_t { no, asked, deadline };
struct Control {
  alignas(interp::kCacheLine) uint32_t stop = 0;
};

// In device memory: whether a threadblock of an earlier launch was stopped. Launches that are queued behind a failed
// one, graph replays included, end at once: their counters are those of the failed one. Not the word above, which is
// a microsecond away and would delay every launch.
struct Halt {
  alignas(interp::kCacheLine) uint32_t halted = 0;
};

// In pinned host memory: where a threadblock stood when it was stopped.
struct Stand {
  uint64_t tile = 0;
  uint32_t step = 0;
  uint32_t wait = 0;
  uint32_t waiting = 0;  // interp::Waiting
  uint32_t stopped = 0;
};

struct Buffers {
  uint8_t* input = nullptr;
  uint8_t* output = nullptr;
  uint8_t* scratch = nullptr;
};

struct Launch {
  interp::Run run;                  // but for first_tile
  const Threadblock* threadblocks;  // one per block of the grid
  Progress* progress;
  Halt* halt;
  Stand* stands;
  Control* control;
  uint64_t timeout_ns;  // a wait that lasts longer stops everything
  uint64_t count;       // elements of a block
  uint32_t chunks;      // of a block
  uint32_t regular;     // all chunks of input and output are whole
  uint32_t fold;        // Fold
  uint32_t system;      // peers on other devices: order memory for the whole system, not for this device alone
  uint32_t fences;      // messages must order the memory of a rank, see ordering.h
  Buffers buffers[kMaxRanks];
};
static_assert(sizeof(Launch) <= 4096);

// The last step of avg: every element of the outputs is divided by how many inputs were added into its chunk.
struct Division {
  struct Rank {
    uint8_t* output = nullptr;
    uint64_t elems = 0;
    const uint64_t* divisors = nullptr;  // per chunk of the output
  };
  uint64_t count;
  uint64_t chunk_elems;
  uint32_t chunks;
  Rank ranks[kMaxRanks];
};
static_assert(sizeof(Division) <= 4096);

// The first step of premulsum: every element of an input, or of the copy of one, is multiplied by the rank's factor.
struct Scaling {
  struct Rank {
    uint8_t* input = nullptr;
    uint64_t elems = 0;
    alignas(8) uint8_t factor[16] = {};  // an element
  };
  Rank ranks[kMaxRanks];
};
static_assert(sizeof(Scaling) <= 4096);

}  // namespace gc3::cuda
