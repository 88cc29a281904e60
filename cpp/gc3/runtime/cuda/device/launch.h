// The arguments of the kernel: plain structs, the same on host and device.
//
// They do not change between replays of a CUDA graph. State that continues from launch to launch is in device memory,
// in Progress: the messages that a connection has carried, and the tiles that a threadblock has finished.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/layout.h"

namespace gc3::cuda {

// Ranks of one launch. Their buffers are in the kernel's arguments, which have at most 4096 bytes.
inline constexpr uint32_t kMaxRanks = 128;
// The most threads of a block, and the blocks that a multiprocessor must be able to hold. A launch whose messages are
// small has fewer threads: all warps execute the control of each step, and take turns on the four schedulers of a
// multiprocessor.
inline constexpr uint32_t kThreads = 512;
inline constexpr uint32_t kLeastThreads = 128;
inline constexpr uint32_t kBlocksPerMultiprocessor = 2;
// The most steps of a threadblock, and the most of their waits, that are copied into shared memory; longer lists are
// read from device memory.
inline constexpr uint32_t kStagedSteps = 128;
inline constexpr uint32_t kStagedWaits = 128;

// The constant data of a threadblock. In device memory.
struct Threadblock {
  interp::Task task;        // at its first step, without regions; its rank is an index into Launch::buffers
  uint32_t stand = 0;       // index into Launch::stands
  uint32_t first_wait = 0;  // of its steps, in the waits
  uint32_t wait_count = 0;
};

// The progress of a threadblock in all launches so far. In device memory; only its own block reads and writes it.
struct Progress {
  uint64_t tiles = 0;
  uint64_t sent = 0;
  uint64_t head_seen = 0;
  uint64_t received = 0;
  uint32_t send_slot = 0;
  uint32_t recv_slot = 0;
};

// In pinned host memory: why the launches stop. Waiting threadblocks poll it. It stays set until the engine is reset.
enum class Stop : uint32_t { no, asked, deadline, differs };
struct Control {
  alignas(interp::kCacheLine) uint32_t stop = 0;
};

// In device memory: whether a threadblock of an earlier launch was stopped. Launches that are queued after a failed
// one, including graph replays, end at once, because their counters are those of the failed one. Control is not read
// for this, because an access to host memory takes about a microsecond and would delay each launch.
struct Halt {
  alignas(interp::kCacheLine) uint32_t halted = 0;
};

// In pinned host memory: the position of a threadblock when it was stopped.
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
  interp::Run run;                  // first_tile is in Progress
  const Threadblock* threadblocks;  // one per block of the grid
  Progress* progress;
  Halt* halt;
  Stand* stands;
  Control* control;
  uint64_t timeout_ns;  // a longer wait stops all threadblocks
  uint64_t count;       // elements of a block
  uint32_t chunks;      // of a block
  uint32_t regular;     // all chunks of input and output are whole
  uint32_t fold;        // Fold
  uint32_t system;      // some ranks are on other devices: memory is ordered for the whole system, not only this device
  uint32_t fences;      // messages must order the memory of a rank, see ordering.h
  Buffers buffers[kMaxRanks];
};
static_assert(sizeof(Launch) <= 4096);

// A one-sided program, see ir/direct/program.h. In device memory.
enum class OneSidedOp : uint32_t {
#define GC3_DIRECT_OP(name, objects, doc) name,
#include "gc3/ir/direct/ops.def"
#undef GC3_DIRECT_OP
};
struct OneSidedPlace {
  uint32_t rank = 0;
  uint32_t chunk = 0;
  uint32_t buffer = 0;  // 0 input, 1 output, 2 scratch
  uint32_t packet = 0;
};
inline constexpr uint32_t kSwitchLoads = 1;
inline constexpr uint32_t kSwitchStores = 2;
struct OneSidedStep {
  uint32_t op = 0;       // OneSidedOp
  uint32_t packets = 0;  // some place of a move is of packets
  uint32_t scratch = 0;  // some place is in scratch
  uint32_t count = 0;
  uint32_t first = 0;    // of a move in the places, else in the objects
  uint32_t sources = 0;  // of a move; else the number of objects
  uint32_t targets = 0;
  uint32_t through = 0;  // an asynchronous move
  // kSwitchLoads: the sources are the same place of all ranks; kSwitchStores: the targets are. A switch can add up the
  // ones and store to the others.
  uint32_t switched = 0;
};
struct OneSidedThreadblock {
  uint32_t first_step = 0;
  uint32_t step_count = 0;
  uint32_t stand = 0;  // index into OneSidedLaunch::stands
};

// What a rank says to another one: at [call % 2] the tag of its call, and above it the lowest bits of its number.
inline constexpr uint32_t kTagBits = 48;
struct OneSidedPeer {
  uint64_t* tells = nullptr;  // in the other's memory
  const uint64_t* told = nullptr;
};

struct OneSidedLaunch {
  const OneSidedStep* steps;
  const OneSidedPlace* places;
  const uint32_t* objects;
  const uint32_t* initial;                  // by semaphore: what it has at first
  const uint32_t* parties;                  // by barrier: the threadblocks that come to it
  const OneSidedThreadblock* threadblocks;  // one per block of the grid
  uint64_t* calls;                          // that each of them has finished
  const uint64_t* scratch_chunks;           // by rank, of one half
  interp::Counter* const* counters;         // in the order of direct::Counters, each where its waiter is
  const OneSidedPeer* peers;                // the other ranks, if they are in other processes
  uint32_t peer_count;
  uint64_t tag;  // of the call: ranks with different calls say so
  Halt* halt;
  Stand* stands;
  Control* control;
  uint64_t timeout_ns;
  uint64_t chunk_bytes;
  uint64_t stride;  // of chunks in scratch
  uint32_t semaphores_at;
  uint32_t barriers_at;
  uint32_t halves;
  uint32_t fold;    // Fold
  uint32_t system;  // some ranks are on other devices
  uint32_t has_switch;
  Buffers switched;  // the same place of the buffers of all ranks, through the switch
  Buffers buffers[kMaxRanks];
};
static_assert(sizeof(OneSidedLaunch) <= 4096);

// The last step of avg: each element of the outputs is divided by the number of inputs in its sum.
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

// The first step of premulsum: each element of an input or its copy is multiplied by the rank's factor.
struct Scaling {
  struct Rank {
    uint8_t* input = nullptr;
    uint64_t elems = 0;
    alignas(8) uint8_t factor[16] = {};  // one element
  };
  Rank ranks[kMaxRanks];
};
static_assert(sizeof(Scaling) <= 4096);

}  // namespace gc3::cuda
