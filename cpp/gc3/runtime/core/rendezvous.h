// How the processes of a job find each other: rank 0 listens on an abstract Unix socket whose name follows from the
// job's, the others connect, and each gets the descriptor of the shared memory.
//
// Not TCP: the port that MASTER_PORT names is often taken by the launcher itself, descriptors travel over Unix sockets
// only, and a rank on another host, or in a container that could not share memory, must not get through.
//
// Anybody can connect to such a socket, and listen on one of its name. Both ends therefore look who is there before
// they send or read anything: another user's process is left alone, as is one of another launch (kinship.h). Then both
// prove that they know the job's secret (handshake.h). A guest that does otherwise is turned away and counted; it costs
// the others nothing but the time to do so.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/core/file_descriptor.h"
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
  std::string secret;                 // see base/secret.h; empty: none
};

struct Met {
  SharedMemory memory;
  std::vector<pid_t> processes;        // by rank
  std::vector<FileDescriptor> pidfds;  // by rank; none for this process
};

// `memory` is what rank 0 brings along; the others' argument is not used.
Result<Met> meet(const Meeting& meeting, SharedMemory memory);

}  // namespace gc3::core
