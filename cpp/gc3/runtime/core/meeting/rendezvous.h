// How the processes of a job connect: rank 0 listens on an abstract Unix socket whose name is derived from the job's,
// the others connect, and each gets the descriptor of the shared memory, or the name of a job that all of them are in.
//
// Not TCP, because the launcher itself often uses the port of MASTER_PORT, because only Unix sockets transfer
// descriptors, and because a rank on another host, or in a container that could not share memory, must not connect.
//
// Any process can connect to such a socket, and can listen under its name. So both ends check the other process before
// they send or read anything: they ignore processes of other users and of other launches (kinship.h). Then both prove
// that they know the job's secret (handshake.h). A guest that fails is disconnected and counted; it costs the others
// only the time to do so.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/launch.h"
#include "gc3/base/result.h"
#include "gc3/runtime/core/sharing/file_descriptor.h"
#include "gc3/runtime/core/sharing/shared_memory.h"

namespace gc3::core {

class Jobs;

// How ranks of several hosts meet; see leaders.h.
struct Route {
  Place here;            // the place of this rank among those of its host
  std::string here_job;  // the name of their meeting
  std::string address;   // "host:port" of rank 0; only the first rank of a host needs it
  std::string network;   // see GC3_NETWORK
  // On rank 0.
  std::shared_ptr<FileDescriptor> listener = {};
  std::string interface = {};  // of the listener, for messages

  // See leaders.h; returns the address.
  Result<std::string> listen(const std::string& towards, std::uint16_t port);
};

// For callers without PyTorch or a library of the launcher: the way to an address that the environment gives. Rank 0
// listens there.
Result<Route> route_by_address(const Launch& launch, const std::string& network);

struct Meeting {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::string job;            // see base/launch.h
  std::uint32_t ordinal = 0;  // how many times this process has joined the same job before
  double timeout_s = 60;
  std::function<bool()> interrupted;  // called regularly; true gives up
  std::string release;                // of gc3, must be the same on all ranks; empty: that of this library
  std::string secret;                 // see base/secret.h; empty: none
  std::shared_ptr<Jobs> jobs = {};    // that this process has joined; null: a job is never used again, see hosts/job.h
  std::optional<Route> route = {};    // none: all ranks run on this host
};

// What rank 0 gives to the others once all have come.
struct Given {
  std::uint64_t job = 0;  // the id of a job that all of them have joined before; 0: a new one
  int descriptor = -1;    // of the memory of a new job
  Extent control;         // the part of the memory for these ranks
};

struct Terms {
  static constexpr std::size_t kMostKnown = 8;
  std::vector<std::uint64_t> known;  // ids of the jobs that this process has joined; the first kMostKnown count
  // Called by rank 0 with the processes of all ranks, and the ids that all of them have named.
  std::function<Result<Given>(const std::vector<pid_t>& processes, const std::vector<std::uint64_t>& common)> give = {};
};

struct Met {
  Given given;
  SharedMemory memory;                 // of a new job; rank 0 has it already
  std::vector<pid_t> processes;        // by rank
  std::vector<FileDescriptor> pidfds;  // by rank; none for this process
};

Result<Met> meet(const Meeting& meeting, const Terms& terms);

}  // namespace gc3::core
