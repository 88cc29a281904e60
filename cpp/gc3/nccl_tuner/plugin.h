// The interface of NCCL's tuner plugins, versions 5 and 6, as far as it is used here. Facts: NCCL's
// src/include/plugin/tuner/tuner_v5.h and tuner_v6.h.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// ncclDebugLogger_t: level, flags, file, line, format, arguments.
using Gc3NcclLogger = void (*)(int, unsigned long, const char*, int, const char*, ...);

// Both versions are passed constants of NCCL's model and the domains of NVLink, which are left as they are. Functions
// return an ncclResult_t. The costs are an array of `algorithms` rows of `protocols` floats.
struct Gc3NcclTuner5 {
  const char* name;
  int (*init)(void** context, std::uint64_t communicator, std::size_t ranks, std::size_t nodes, Gc3NcclLogger log,
              void* domains, void* constants);
  int (*get_coll_info)(void* context, int function, std::size_t bytes, int operations, float** costs, int algorithms,
                       int protocols, int registered, int* channels);
  int (*finalize)(void* context);
};

struct Gc3NcclTuner6 {
  Gc3NcclTuner5 base;  // the same members in the same order
  int (*get_chunk_size)(void* context, int function, std::size_t bytes, int algorithm, int protocol, int channels,
                        std::size_t* chunk);  // null: NCCL's own
};

__attribute__((visibility("default"))) extern const Gc3NcclTuner5 ncclTunerPlugin_v5;
__attribute__((visibility("default"))) extern const Gc3NcclTuner6 ncclTunerPlugin_v6;
}
