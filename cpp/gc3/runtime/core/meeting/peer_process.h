// The process at the other end of a socket, or one that another rank has named: its user, and whether it is still the
// same process. Process ids are reused, so an id does not identify a process; a pidfd does. Where the system or a
// container's profile refuses pidfds, a descriptor of /proc/PID takes its place.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <istream>
#include <optional>
#include <string>

#include "gc3/base/result.h"
#include "gc3/runtime/core/sharing/file_descriptor.h"

namespace gc3::core {

// From /proc/PID/stat; without /proc from Linux 6.13 or newer, which tells the parent and the session only.
struct ProcessFacts {
  pid_t parent = 0;  // 0: none in this PID namespace
  pid_t session = 0;
  std::uint64_t started = 0;  // in ticks since the system was booted; 0: unknown
  char state = 0;             // of the main thread. 'T': stopped; 't': by a debugger
  int threads = 0;            // with a main thread that has ended while others go on; 0: unknown
};
std::uint64_t ticks_since_boot();
// None if there is no such process, or this process cannot see it.
std::optional<ProcessFacts> facts_of(pid_t process);
// The text of a file of /proc. Nothing if its process has ended since it was opened, where iterators throw.
std::string proc_text(std::istream& file);

struct PeerProcess {
  pid_t process = 0;
  uid_t user = 0;
  std::uint64_t started = 0;
  FileDescriptor pidfd;  // or a descriptor of /proc/PID
};
// To be polled; -1 is never ready.
inline pollfd watch_for_end(int pidfd) { return {pidfd, POLLIN | POLLOUT, 0}; }
// Whether the process of a polled one has ended.
bool has_ended(const pollfd& polled);

// The process and user at the other end of a Unix socket, as the system recorded them when that end connected or
// listened.
struct PeerUser {
  pid_t process = 0;
  uid_t user = 0;
};
Result<PeerUser> user_at(int socket);

// Whether the process is in this PID namespace. In another one, the same id is another process.
bool sees(pid_t process);

// The same with a pidfd. Fails if the process has ended, or is of another user than this process.
Result<PeerProcess> process_at(int socket);
// Whether the real and the effective user of the process are this user. They differ for a program with a set-user-ID
// bit that another user has started.
bool is_own(pid_t process);
bool is_own(pid_t process, const FileDescriptor& pidfd);
// A process that another process has named. Fails if it is of another user, or was not started at `started`.
Result<PeerProcess> process_named(pid_t process, std::uint64_t started);

}  // namespace gc3::core
