// The process at the other end of a socket, or one that another rank has named: whose it is, and whether it is still
// the same one. Process ids are used again, so an id alone says nothing: a pidfd stays with its process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "gc3/base/result.h"
#include "gc3/runtime/core/file_descriptor.h"

namespace gc3::core {

// Of /proc/PID/stat.
struct ProcessFacts {
  pid_t parent = 0;  // 0: none in this PID namespace
  pid_t session = 0;
  std::uint64_t started = 0;  // in the system's ticks since it was booted
  char state = 0;             // 'T': stopped
};
std::uint64_t ticks_since_boot();
// None: there is no such process, or it cannot be seen.
std::optional<ProcessFacts> facts_of(pid_t process);

struct PeerProcess {
  pid_t process = 0;
  uid_t user = 0;
  std::uint64_t started = 0;
  FileDescriptor pidfd;
};

// Whose end of the connected Unix socket this is: as the system has noted it when that end connected, or listened.
struct PeerUser {
  pid_t process = 0;
  uid_t user = 0;
};
Result<PeerUser> user_at(int socket);

// Whether the process is of this PID namespace: outside, or further inside, ids mean something else.
bool sees(pid_t process);

// The same as a process that can be watched. Fails if it has ended, or is of another user than this process.
Result<PeerProcess> process_at(int socket);
// Whether all that the process does is this user's: a program with a set-user-ID bit, which another user has started,
// is of both.
bool is_own(pid_t process);
// A process that somebody else has told of: of this user, and started when it is said to have been.
Result<PeerProcess> process_named(pid_t process, std::uint64_t started);

}  // namespace gc3::core
