// What both ends of a meeting know: the names of the sockets, the messages, and how long to wait.
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
#include "gc3/runtime/core/file_descriptor.h"
#include "gc3/runtime/core/handshake.h"
#include "gc3/runtime/core/rendezvous.h"

namespace gc3::core {

using Clock = std::chrono::steady_clock;

// Somebody else may hold a name, so rank 0 has several. With a secret there are as many that nobody can guess.
constexpr std::uint32_t kNames = 16;
// The last name is that of a rank 0 that has given up and tells those who come late why.
constexpr std::uint32_t kGone = 2 * kNames;
constexpr std::uint32_t kVersion = 0x67633303;  // of the layout of everything shared, and of these messages
constexpr std::size_t kMaxText = 1024;
constexpr std::chrono::seconds kPatience{5};  // with one who has connected and says nothing

// A message is one of these, whole, in one packet. Texts (`refusal` and `elsewhere`) follow their head.
enum class Kind : std::uint32_t {
  challenge = 1,  // host: Challenge
  hello,          // guest: Hello
  answer,         // host: Answer; only now does the guest look at what the host says
  welcome,        // host: the head, a Member for each rank, and the memory's descriptor
  unproven,       // host: the guest has not proven that it knows the host's secret
  refusal,        // host, after the answer: the meeting is over, or was none; why
  elsewhere,      // host, after the answer: this is not the guest's rank 0, which may come yet; why
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
  char release[16] = {};  // of gc3: programs and tables may differ where the layout is the same
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
Address address_of(const Meeting& meeting, std::uint32_t which);
// How many names there are beside the last.
inline std::uint32_t names_of(const Meeting& meeting) { return meeting.secret.empty() ? kNames : 2 * kNames; }
// What the proofs of a meeting are for.
std::string purpose_of(const Meeting& meeting);
std::string release_of(const Meeting& meeting);

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
// Sends all of it at once or nothing, without waiting for room.
bool send_packet(int socket, std::string_view packet);
bool send_text(int socket, Kind kind, std::string_view text);
// A packet of at most `most` bytes, if there is one; empty: the other end has hung up, or has sent a longer one.
std::string receive_packet(int socket, std::size_t most);
template <class T>
std::optional<T> unpacked(std::string_view packet) {
  T value;
  if (packet.size() != sizeof value) return {};
  packet.copy(reinterpret_cast<char*>(&value), sizeof value);
  if (value.head.kind != T().head.kind || value.head.version != kVersion) return {};
  return value;
}

// A deadline and Ctrl-C, for a wait of many short ones.
class Patience {
 public:
  explicit Patience(const Meeting& meeting);
  bool over() const { return Clock::now() > deadline_; }
  void extend(Clock::duration by) { deadline_ += by; }
  // Asks the meeting now and then.
  Status check();
  // Sleeps a little, the more the longer this lasts.
  void pause() const;

 private:
  const Meeting& meeting_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point deadline_;
  Clock::time_point asked_{};
};

std::string seconds(double s);
// A text from another process, fit for a message: without control characters.
std::string shown(std::string_view text);
Diagnostic not_met(std::string text);
// Of a process that sees() denies; 0: it has no id here.
std::string process_outside(pid_t process);

Result<Met> host_meeting(const Meeting& meeting, SharedMemory memory);
Result<Met> visit_meeting(const Meeting& meeting);

}  // namespace gc3::core
