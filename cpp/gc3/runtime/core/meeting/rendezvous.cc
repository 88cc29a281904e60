#include "gc3/runtime/core/meeting/rendezvous.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/meeting/rendezvous_wire.h"

namespace gc3::core {
namespace {

constexpr std::size_t kNameDigits = 40;
constexpr std::chrono::milliseconds kBetweenQuestions{20};

}  // namespace

std::string purpose_of(const Meeting& meeting) {
  return std::to_string(geteuid()) + "|" + meeting.job + "#" + std::to_string(meeting.ordinal);
}

Address abstract_address(std::string_view name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::size_t length = name.copy(address.name.sun_path + 1, sizeof address.name.sun_path - 1);  // a zero is first
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

Address address_of(const Meeting& meeting, std::uint32_t which) {
  const bool secret = which >= kNames && which != kGone;
  const std::string text = purpose_of(meeting) + "|" + std::to_string(which);
  // A hash, because a name has at most 107 bytes.
  const std::string digits = hex(hmac_sha256(secret ? meeting.secret : "", "gc3 name:" + text)).substr(0, kNameDigits);
  return abstract_address("gc3-" + digits);
}

std::string release_of(const Meeting& meeting) { return meeting.release.empty() ? GC3_VERSION : meeting.release; }

bool send_packet(int socket, std::string_view packet) {
  return send(socket, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(packet.size());
}

bool send_with(int socket, std::string_view packet, int descriptor) {
  iovec data{const_cast<char*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptor)> space{};
  if (descriptor >= 0) {
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(packet.size());
}

bool send_text(int socket, Kind kind, std::string_view text) {
  return send_packet(socket, std::string(bytes_of(Head{kind})) + std::string(text.substr(0, kMaxText)));
}

std::string receive_packet(int socket, std::size_t most) {
  std::string packet(most, '\0');
  const ssize_t got = recv(socket, packet.data(), packet.size(), MSG_DONTWAIT | MSG_TRUNC);
  packet.resize(got < 0 || static_cast<std::size_t>(got) > most ? 0 : static_cast<std::size_t>(got));
  return packet;
}

JoinDeadline::JoinDeadline(const Meeting& meeting)
    : meeting_(meeting),
      limit_(std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(std::min(meeting.timeout_s, 1e9)))) {}

Status JoinDeadline::check() {
  const Clock::time_point now = Clock::now();
  if (now - asked_ < kBetweenQuestions) return {};
  asked_ = now;
  if (meeting_.interrupted && meeting_.interrupted()) return Diagnostic(ErrorCode::Aborted, "interrupted");
  return {};
}

void JoinDeadline::pause() {
  constexpr std::chrono::milliseconds kShortest{2};
  constexpr std::chrono::milliseconds kLongest{20};
  std::this_thread::sleep_for(
      std::clamp<Clock::duration>(waited_.waited() / 64, Clock::duration(kShortest), Clock::duration(kLongest)));
}

std::string seconds(double s) {
  std::string text = std::to_string(s);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

std::string shown(std::string_view text) {
  std::string clean(text);
  std::ranges::replace_if(clean, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, ' ');
  return clean;
}

std::string process_outside(pid_t process) {
  return (process == 0 ? "a process" : "process " + std::to_string(process)) +
         " is in another PID namespace (another container)";
}

Diagnostic not_met(std::string text) { return Diagnostic(ErrorCode::NotMet, std::move(text)); }

Result<Met> meet(const Meeting& meeting, const Terms& terms) {
  return meeting.rank == 0 ? host_meeting(meeting, terms) : visit_meeting(meeting, terms);
}

}  // namespace gc3::core
