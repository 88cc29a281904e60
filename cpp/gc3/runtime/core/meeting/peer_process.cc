#include "gc3/runtime/core/meeting/peer_process.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/sharing/shared_memory.h"

namespace gc3::core {
namespace {

#if !defined(SO_PEERPIDFD)
constexpr int SO_PEERPIDFD = 77;  // Linux 6.5
#endif

std::string proc(pid_t process, const char* file) { return "/proc/" + std::to_string(process) + "/" + file; }

struct Users {
  uid_t real = 0;
  uid_t effective = 0;
};

// Also works for a process whose environment and descriptors are not readable.
std::optional<Users> users_of(pid_t process) {
  std::ifstream status(proc(process, "status"));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("Uid:")) continue;
    std::istringstream fields(line.substr(4));
    Users users;
    if (fields >> users.real >> users.effective) return users;
  }
  return {};
}

// What the system tells about the process of a pidfd (`pidfd_info` of Linux 6.13).
struct PidfdInfo {
  std::uint64_t mask;  // what is asked for, and then what was told
  std::uint64_t control_group;
  std::uint32_t process, thread_group, parent;
  std::uint32_t real_user, real_group, effective_user, effective_group, rest[5];
};
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);  // PIDFD_GET_INFO
constexpr std::uint64_t kUsers = 2;                             // PIDFD_INFO_CREDS

// Without a text, whose writing and reading takes the system ten times as long; with one where the system is older.
std::optional<Users> users_of(pid_t process, const FileDescriptor& pidfd) {
  PidfdInfo info{};
  info.mask = kUsers;
  if (ioctl(pidfd.get(), kGetInfo, &info) != 0 || (info.mask & kUsers) == 0) return users_of(process);
  return Users{info.real_user, info.effective_user};
}

bool is_this_user(const std::optional<Users>& users) {
  return users && users->real == geteuid() && users->effective == geteuid();
}

std::optional<ProcessFacts> facts_in(const std::string& stat) {
  const std::size_t name_end = stat.rfind(')');  // the name before it may contain anything
  if (name_end == std::string::npos) return {};
  std::istringstream fields(stat.substr(name_end + 1));
  ProcessFacts facts;
  std::string skipped;
  fields >> facts.state >> facts.parent >> skipped >> facts.session;
  constexpr int kBetween = 13;  // fields from the seventh to the 19th
  for (int i = 0; i < kBetween; ++i) fields >> skipped;
  fields >> facts.threads >> skipped >> facts.started;
  if (!fields) return {};
  return facts;
}

FileDescriptor open_pidfd(pid_t process) {
  FileDescriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  if (pidfd.valid() || (errno != EPERM && errno != EACCES && errno != ENOSYS)) return pidfd;
  const int refusal = errno;
  FileDescriptor directory(open(proc(process, "").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid() && errno != EMFILE && errno != ENFILE) errno = refusal;
  return directory;
}

std::optional<ProcessFacts> facts_without_proc(pid_t process) {
  const FileDescriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  PidfdInfo info{};
  if (!pidfd.valid() || ioctl(pidfd.get(), kGetInfo, &info) != 0) return {};
  ProcessFacts facts;
  facts.parent = static_cast<pid_t>(info.parent);
  facts.session = std::max(getsid(process), 0);
  return facts;
}

Diagnostic ended(pid_t process) {
  return Diagnostic(ErrorCode::RankLost, "process " + std::to_string(process) + " has ended while joining");
}

Diagnostic no_pidfd(pid_t process) {
  if (errno == ESRCH) return ended(process);
  if (errno != EPERM && errno != EACCES && errno != ENOSYS) return refused("pidfd_open");
  return refused("the container's seccomp profile must allow pidfd_open, or /proc must show process " +
                 std::to_string(process));
}

// The pidfd is checked after /proc was read: if its process has not ended by then, /proc described that process.
Result<PeerProcess> checked(pid_t process, FileDescriptor pidfd) {
  const std::optional<Users> users = users_of(process, pidfd);
  const std::optional<ProcessFacts> facts = facts_of(process);
  pollfd watched = watch_for_end(pidfd.get());
  if (poll(&watched, 1, 0) > 0 && has_ended(watched)) return ended(process);
  if (!users || !facts) {
    return Diagnostic(ErrorCode::SystemRefused,
                      "the system does not tell the user of process " + std::to_string(process));
  }
  if (users->effective != geteuid()) {
    return Diagnostic(ErrorCode::NotMet, "process " + std::to_string(process) + " is of user " +
                                             std::to_string(users->effective) + ", not of user " +
                                             std::to_string(geteuid()));
  }
  return PeerProcess{process, users->effective, facts->started, std::move(pidfd)};
}

}  // namespace

std::uint64_t ticks_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto ticks = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  constexpr std::uint64_t kNanoseconds = 1'000'000'000;
  return static_cast<std::uint64_t>(now.tv_sec) * ticks +
         static_cast<std::uint64_t>(now.tv_nsec) * ticks / kNanoseconds;
}

std::optional<ProcessFacts> facts_of(pid_t process) {
  std::ifstream file(proc(process, "stat"));
  if (!file.is_open() && access("/proc/self/stat", R_OK) != 0) return facts_without_proc(process);
  return facts_in(proc_text(file));
}

std::string proc_text(std::istream& file) {
  std::string text;
  std::getline(file, text, '\0');
  return text;
}

// A pidfd cannot be written, so it is never ready for that; a directory always is.
bool has_ended(const pollfd& polled) {
  if ((polled.revents & POLLOUT) == 0) return polled.revents != 0;
  const FileDescriptor file(openat(polled.fd, "stat", O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno == ESRCH || errno == ENOENT;
  std::array<char, 1024> text{};
  const ssize_t got = read(file.get(), text.data(), text.size());
  if (got <= 0) return got == 0 || errno == ESRCH;
  const std::optional<ProcessFacts> facts = facts_in({text.data(), static_cast<std::size_t>(got)});
  return facts && (facts->state == 'Z' || facts->state == 'X') && facts->threads <= 1;
}

Result<PeerUser> user_at(int socket) {
  ucred who{};
  socklen_t length = sizeof who;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return refused("SO_PEERCRED");
  return PeerUser{who.pid, who.uid};
}

bool sees(pid_t process) {
  if (process <= 0) return false;  // the system's number for a process of an outer namespace
  struct stat own{};
  struct stat its{};
  if (stat("/proc/self/ns/pid", &own) != 0 || stat(proc(process, "ns/pid").c_str(), &its) != 0) {
    return true;  // unknown; the ids are compared later
  }
  return own.st_ino == its.st_ino && own.st_dev == its.st_dev;
}

Result<PeerProcess> process_at(int socket) {
  GC3_ASSIGN(const PeerUser who, user_at(socket));
  if (who.user != geteuid()) {
    return Diagnostic(ErrorCode::NotMet, "process " + std::to_string(who.process) + " is of user " +
                                             std::to_string(who.user) + ", not of user " + std::to_string(geteuid()));
  }
  // The id is 0 if the process has none in this namespace.
  if (who.process <= 0) {
    return Diagnostic(ErrorCode::NotMet, "a process is in another PID namespace (another container)");
  }
  int descriptor = -1;
  socklen_t length = sizeof descriptor;
  const bool given = getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &descriptor, &length) == 0;
  // An older system. If another process has got the id since, the first one has ended and its socket is closed, which
  // is checked below.
  FileDescriptor pidfd = given ? FileDescriptor(descriptor) : open_pidfd(who.process);
  if (!pidfd.valid()) return no_pidfd(who.process);
  pollfd end{socket, 0, 0};
  if (poll(&end, 1, 0) > 0 && (end.revents & (POLLHUP | POLLERR)) != 0) return ended(who.process);
  return checked(who.process, std::move(pidfd));
}

bool is_own(pid_t process) { return is_this_user(users_of(process)); }
bool is_own(pid_t process, const FileDescriptor& pidfd) { return is_this_user(users_of(process, pidfd)); }

Result<PeerProcess> process_named(pid_t process, std::uint64_t started) {
  if (process <= 0) return Diagnostic(ErrorCode::NotMet, "there is no process " + std::to_string(process));
  FileDescriptor pidfd = open_pidfd(process);
  if (!pidfd.valid()) return no_pidfd(process);
  GC3_ASSIGN(PeerProcess found, checked(process, std::move(pidfd)));
  if (found.started != started) return ended(process);  // another process has its id now
  return found;
}

}  // namespace gc3::core
