// The parts that both ends of a rendezvous use: the names of the sockets, the messages, and how long to wait.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gc3/base/result.h"
#include "gc3/runtime/core/meeting/handshake.h"
#include "gc3/runtime/core/meeting/rendezvous.h"
#include "gc3/runtime/core/sharing/file_descriptor.h"
#include "gc3/runtime/core/waiting/wait_policy.h"

namespace gc3::core {

using Clock = std::chrono::steady_clock;

// Another process may hold a name, so rank 0 has several. With a secret it has as many again, which cannot be guessed.
constexpr std::uint32_t kNames = 16;
// A rank 0 that has given up listens on the last name, and tells late ranks the reason.
constexpr std::uint32_t kGone = 2 * kNames;
constexpr std::uint32_t kVersion = 0x67633307;  // of the layout of shared memory, and of these messages
constexpr std::size_t kMaxText = 1024;
constexpr std::chrono::milliseconds kLook{50};  // the longest single wait
constexpr std::chrono::seconds kAfterRank0{2};  // rank 0 gives up first, and says which ranks are missing
constexpr int kBacklog = 1024;  // connections that have not been accepted yet; the system may have a lower limit
constexpr int kAtOnce = 256;    // guests that are accepted before the accepted ones are served again
constexpr std::chrono::seconds kSilenceLimit{5};  // for a process that has connected and sends nothing

// A message is one packet. In `refusal` and `elsewhere` a text follows the head.
enum class Kind : std::uint32_t {
  challenge = 1,  // host: Challenge
  hello,          // guest: Hello
  answer,         // host: Answer; the guest uses no message of the host before this one
  welcome,        // host: Welcome, a Member for each rank, and the descriptor of new memory
  unproven,       // host: the guest has not proven that it knows the host's secret
  refusal,        // host, after the answer: the ranks will not meet; the text is the reason
  elsewhere,  // host, after the answer: this is not the guest's rank 0, which may still start; the text is the reason
};
struct Head {
  Kind kind{};
  std::uint32_t version = kVersion;
};
struct Challenge {
  Head head{Kind::challenge};
  Nonce nonce{};
};
struct Identity {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::int32_t process = 0;
  char release[16] = {};                        // of gc3: programs and tables may differ even if the layout is the same
  std::uint64_t known[Terms::kMostKnown] = {};  // see Terms; 0: none
};
struct Hello {
  Head head{Kind::hello};
  Nonce nonce{};
  Digest proof{};
  Identity identity;
};
struct Answer {
  Head head{Kind::answer};
  Digest proof{};
};
struct Welcome {
  Head head{Kind::welcome};
  std::uint64_t job = 0;          // see Given
  std::uint64_t control[2] = {};  // offset and bytes
};
struct Member {
  std::int32_t process = 0;
  std::uint32_t reserved = 0;
  std::uint64_t started = 0;  // see ProcessFacts
};

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};
// Of an abstract name, which exists as long as a socket has it.
Address abstract_address(std::string_view name);
Address address_of(const Meeting& meeting, std::uint32_t which);
// The number of names without the last.
inline std::uint32_t names_of(const Meeting& meeting) { return meeting.secret.empty() ? kNames : 2 * kNames; }
// The text that binds the proofs of a rendezvous to its user and its job.
std::string purpose_of(const Meeting& meeting);
std::string release_of(const Meeting& meeting);

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
// Sends the whole packet or nothing, without waiting for space.
bool send_packet(int socket, std::string_view packet);
// The same with a descriptor; -1: none.
bool send_with(int socket, std::string_view packet, int descriptor);
bool send_text(int socket, Kind kind, std::string_view text);
// A packet of at most `most` bytes; empty if there is none, or the other end has disconnected or sent a longer one.
std::string receive_packet(int socket, std::size_t most);
template <class T>
std::optional<T> unpacked(std::string_view packet) {
  T value;
  if (packet.size() != sizeof value) return {};
  packet.copy(reinterpret_cast<char*>(&value), sizeof value);
  if (value.head.kind != T().head.kind || value.head.version != kVersion) return {};
  return value;
}

// The deadline of a wait that consists of many short ones, and a check for Ctrl-C.
class JoinDeadline {
 public:
  explicit JoinDeadline(const Meeting& meeting);
  bool over() { return waited_.waited() > limit_; }
  void extend(Clock::duration by) { limit_ += by; }
  // Fails if the user has interrupted the meeting; asks only from time to time.
  Status check();
  // Sleeps for a short time, which grows with the duration of the wait.
  void pause();

 private:
  const Meeting& meeting_;
  WaitClock waited_;
  Clock::duration limit_;
  Clock::time_point asked_{};
};

std::string seconds(double s);
// A text from another process, for a message: without control characters.
std::string shown(std::string_view text);
Diagnostic not_met(std::string text);
// The message for a process for which sees() is false; 0: it has no id here.
std::string process_outside(pid_t process);

Result<Met> host_meeting(const Meeting& meeting, const Terms& terms);
Result<Met> visit_meeting(const Meeting& meeting, const Terms& terms);

}  // namespace gc3::core
