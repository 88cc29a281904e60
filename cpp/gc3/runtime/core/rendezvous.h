// How the processes of a job find each other: rank 0 listens on an abstract Unix socket whose name follows from the
// job's, the others connect, and each gets the descriptor of the shared memory.
//
// Not TCP: the port that MASTER_PORT names is often taken by the launcher itself, descriptors travel over Unix sockets
// only, and a rank on another host, or in a container that could not share memory, must not get through.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/core/shared_memory.h"

namespace gc3::core {

struct Meeting {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::string job;            // see base/launch.h
  std::uint32_t ordinal = 0;  // how many times this process has met the same job before
  double timeout_s = 60;
  std::function<bool()> interrupted;  // asked now and then; true gives up
  std::string release;                // of gc3; empty: what this is. All ranks have the same
};

struct Met {
  SharedMemory memory;
  std::vector<pid_t> processes;  // by rank
};

// `memory` is what rank 0 brings along; the others' argument is not used.
Result<Met> meet(const Meeting& meeting, SharedMemory memory);

}  // namespace gc3::core
