#include "gc3/runtime/core/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <thread>

#include "gc3/base/hash128.h"

namespace gc3::core {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kVersion = 0x67633301;  // of the layout of everything shared
constexpr std::size_t kMaxText = 512;

struct Hello {
  std::uint32_t version = kVersion;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::int32_t process = 0;
  char release[16] = {};  // of gc3: programs and tables may differ where the layout is the same
};

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

Address address_of(const Meeting& meeting) {
  // Hashed: a name has at most 107 bytes.
  std::uint64_t a = 1;
  std::uint64_t b = 2;
  for (const char c : meeting.job + "#" + std::to_string(meeting.ordinal)) {
    a = mix64(a ^ static_cast<unsigned char>(c));
    b = mix64(b + static_cast<unsigned char>(c));
  }
  const std::string text = "gc3-" + std::to_string(geteuid()) + "-" + std::to_string(a) + "-" + std::to_string(b);
  Address address;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, text.data(), text.size());  // the leading zero makes it abstract
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

std::string seconds(double s) {
  std::string text = std::to_string(s);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

std::string release_of(const Meeting& meeting) { return meeting.release.empty() ? GC3_VERSION : meeting.release; }

Diagnostic not_met(std::string text) { return Diagnostic(ErrorCode::NotMet, std::move(text)); }

class Meeter {
 public:
  explicit Meeter(const Meeting& meeting)
      : meeting_(meeting), address_(address_of(meeting)), deadline_(Clock::now() + timeout()) {}

  Result<Met> host(SharedMemory memory) {
    GC3_ASSIGN(const FileDescriptor listener, listen_for_others());
    Met met{std::move(memory), std::vector<pid_t>(meeting_.size)};
    met.processes[0] = getpid();
    std::vector<FileDescriptor> guests(meeting_.size);
    FileDescriptor last;  // the guest that is being greeted
    const std::optional<Diagnostic> problem = gather(listener.get(), met, guests, last);
    if (problem) {
      const bool own = problem->code != ErrorCode::NotMet;
      const std::string told =
          own ? "rank 0 gave up while the others were joining: " + problem->message : problem->message;
      turn_away(listener.get(), guests, last, told);
      return *problem;
    }
    for (std::uint32_t r = 1; r < meeting_.size; ++r) {
      if (!send_welcome(guests[r].get(), met)) {
        const std::string told = gone(r, met);
        turn_away(listener.get(), guests, last, told);
        return not_met(told);
      }
    }
    return met;
  }

  Result<Met> visit() {
    GC3_ASSIGN(const FileDescriptor host, connect_to_host());
    // Rank 0 gives up first, and says who has not come.
    deadline_ = Clock::now() + timeout() + std::chrono::seconds(2);
    Hello hello{kVersion, meeting_.rank, meeting_.size, getpid()};
    release_of(meeting_).copy(hello.release, sizeof hello.release - 1);
    if (send(host.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) return refused("sending to rank 0");
    while (Clock::now() < deadline_) {
      GC3_ASSIGN(const bool ready, wait_a_while(host.get()));
      if (ready) return receive_welcome(host.get());
    }
    return not_met("rank 0 waits for other ranks since " + seconds(meeting_.timeout_s));
  }

 private:
  Clock::duration timeout() const {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(meeting_.timeout_s));
  }

  // Waits until every rank has come; what is wrong, if that does not happen.
  std::optional<Diagnostic> gather(int listener, Met& met, std::vector<FileDescriptor>& guests, FileDescriptor& last) {
    for (std::uint32_t come = 1; come < meeting_.size;) {
      const Result<bool> ready = wait_a_while(listener);
      if (!ready.ok()) return ready.error();
      if (const std::optional<std::uint32_t> left = who_left(guests)) return not_met(gone(*left, met));
      if (!ready.value()) {
        if (Clock::now() > deadline_) return not_met(missing(guests));
        continue;
      }
      last = FileDescriptor(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      if (!last.valid()) continue;
      Hello hello;
      if (const std::optional<std::string> problem = greet(last.get(), guests, hello)) return not_met(*problem);
      met.processes[hello.rank] = hello.process;
      guests[hello.rank] = std::move(last);
      ++come;
    }
    return {};
  }

  // A guest that has hung up: its process has ended, or it has given up.
  static std::optional<std::uint32_t> who_left(const std::vector<FileDescriptor>& guests) {
    std::vector<pollfd> watched;
    for (const FileDescriptor& guest : guests) watched.push_back({guest.get(), 0, 0});  // -1 is passed over
    if (poll(watched.data(), watched.size(), 0) <= 0) return {};
    for (std::uint32_t r = 0; r < watched.size(); ++r) {
      if (watched[r].revents != 0) return r;
    }
    return {};
  }

  static std::string gone(std::uint32_t rank, const Met& met) {
    return "rank " + std::to_string(rank) + " (process " + std::to_string(met.processes[rank]) +
           ") has gone while the others were joining";
  }

  Result<FileDescriptor> listen_for_others() {
    for (;;) {
      FileDescriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!listener.valid()) return refused("socket");
      if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address_.name), address_.length) == 0) {
        if (listen(listener.get(), static_cast<int>(meeting_.size)) != 0) return refused("listen");
        return listener;
      }
      if (errno != EADDRINUSE) return refused("bind");
      // Another job of this name; perhaps it is just ending.
      GC3_CHECK(pause_a_little());
      if (Clock::now() > deadline_) return not_met("another rank 0 of this job is waiting on this host");
    }
  }

  Result<FileDescriptor> connect_to_host() {
    for (;;) {
      FileDescriptor host(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      if (!host.valid()) return refused("socket");
      if (connect(host.get(), reinterpret_cast<const sockaddr*>(&address_.name), address_.length) == 0) return host;
      if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) return refused("connecting to rank 0");
      GC3_CHECK(pause_a_little());
      if (Clock::now() > deadline_) {
        return not_met("rank 0 has not called gc3.init() on this host within " + seconds(meeting_.timeout_s));
      }
    }
  }

  Status pause_a_little() {
    if (meeting_.interrupted && meeting_.interrupted()) return Diagnostic(ErrorCode::Aborted, "interrupted");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return {};
  }

  // Until there is something to read; false: there is nothing after a while.
  Result<bool> wait_a_while(int descriptor) {
    pollfd waiting{descriptor, POLLIN, 0};
    const int ready = poll(&waiting, 1, 50);
    if (ready < 0 && errno != EINTR) return refused("poll");
    if (meeting_.interrupted && meeting_.interrupted()) return Diagnostic(ErrorCode::Aborted, "interrupted");
    return ready > 0;
  }

  // What is wrong with the guest, if anything.
  std::optional<std::string> greet(int guest, const std::vector<FileDescriptor>& guests, Hello& hello) const {
    timeval patience{5, 0};
    setsockopt(guest, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ucred who{};
    socklen_t length = sizeof who;
    if (getsockopt(guest, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0 || who.uid != geteuid()) {
      return "a process of another user has tried to join";
    }
    if (recv(guest, &hello, sizeof hello, 0) != sizeof hello || hello.version != kVersion) {
      return "process " + std::to_string(who.pid) + " has tried to join with another version of gc3";
    }
    const std::string name = "rank " + std::to_string(hello.rank);
    hello.release[sizeof hello.release - 1] = 0;
    if (hello.release != release_of(meeting_)) {
      return name + " has version " + hello.release + " of gc3, rank 0 has " + release_of(meeting_);
    }
    if (hello.size != meeting_.size) {
      return name + " says there are " + std::to_string(hello.size) + " ranks, rank 0 says " +
             std::to_string(meeting_.size);
    }
    if (hello.rank == 0 || hello.rank >= meeting_.size || guests[hello.rank].valid()) {
      return "two processes say they are " + name;
    }
    if (hello.process != who.pid) return name + " lives in another PID namespace (another container)";
    return {};
  }

  std::string missing(const std::vector<FileDescriptor>& guests) const {
    std::string names;
    for (std::uint32_t r = 1; r < meeting_.size; ++r) {
      if (!guests[r].valid()) names += (names.empty() ? "" : ", ") + std::to_string(r);
    }
    return "of " + std::to_string(meeting_.size) + " ranks these have not come within " + seconds(meeting_.timeout_s) +
           ": " + names;
  }

  // All that have come, those included that nobody has greeted yet.
  static void turn_away(int listener, const std::vector<FileDescriptor>& guests, const FileDescriptor& last,
                        const std::string& problem) {
    const auto tell = [&](const FileDescriptor& guest) {
      if (guest.valid()) send(guest.get(), problem.data(), std::min(problem.size(), kMaxText), MSG_NOSIGNAL);
      return guest.valid();
    };
    for (const FileDescriptor& guest : guests) tell(guest);
    tell(last);
    while (tell(FileDescriptor(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)))) {
    }
  }

  // A welcome is the table of processes with the memory's descriptor; a text without one says what is wrong.
  static bool send_welcome(int guest, const Met& met) {
    iovec data{const_cast<pid_t*>(met.processes.data()), met.processes.size() * sizeof(pid_t)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int descriptor = met.memory.descriptor();
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    return sendmsg(guest, &message, MSG_NOSIGNAL) >= 0;
  }

  Result<Met> receive_welcome(int host) const {
    std::vector<char> bytes(std::max(meeting_.size * sizeof(pid_t), kMaxText));
    iovec data{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    const ssize_t got = recvmsg(host, &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) return not_met("rank 0 has gone before all ranks had come");
    const cmsghdr* rights = CMSG_FIRSTHDR(&message);
    if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) {
      return not_met(std::string(bytes.data(), static_cast<std::size_t>(got)));
    }
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    Met met{SharedMemory::adopt(FileDescriptor(descriptor)), std::vector<pid_t>(meeting_.size)};
    std::memcpy(met.processes.data(), bytes.data(), meeting_.size * sizeof(pid_t));
    return met;
  }

  const Meeting& meeting_;
  Address address_;
  Clock::time_point deadline_;
};

}  // namespace

Result<Met> meet(const Meeting& meeting, SharedMemory memory) {
  Meeter meeter(meeting);
  return meeting.rank == 0 ? meeter.host(std::move(memory)) : meeter.visit();
}

}  // namespace gc3::core
