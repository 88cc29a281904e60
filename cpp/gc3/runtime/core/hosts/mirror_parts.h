// The messages between leaders of hosts, and the parts of Mirror that its files share.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gc3/runtime/core/hosts/mirror.h"
#include "gc3/runtime/core/meeting/rendezvous_wire.h"
#include "gc3/runtime/core/sharing/group_blocks.h"

namespace gc3::core {

namespace mirror {

enum class What : std::uint32_t {
  beat = 1,  // a sign of life, on each connection by itself
  block,     // Block, then group_blocks::Recorded of calls, then the texts `noted` and `made` unless sent before
  want,      // the id of a group whose blocks are to be sent again, because it is new on the sender's host
  reason,    // the id of a group that was given up, the code, the text
  state,     // a rank and its Board::State
  loss,      // a host, and why it is lost; of the receiver itself: why the sender ends the connection
  left,      // the host's ranks have left the job
};
constexpr std::uint32_t kEverybody = ~std::uint32_t{0};

struct MessageHead {
  What what{};
  std::uint32_t host = 0;  // of the sender
  std::uint32_t to = kEverybody;
  std::uint32_t heard = 0;  // of a beat: how many of the receiver's have come
};
struct Block {
  std::uint64_t id[2] = {};
  std::uint32_t rank = 0;  // in the group
  std::uint32_t entries = 0;
  std::uint64_t begun = 0;
  std::uint64_t finished = 0;
  std::uint64_t left = 0;
  std::uint64_t noted = 0;
  std::uint64_t note_bytes = 0;
  std::uint64_t made = 0;
  std::uint64_t awaited = 0;
  std::uint64_t label = 0;
  std::uint64_t waits = 0;
  std::uint64_t awaits[3] = {};
  struct Turn {
    std::uint64_t number = 0;
    std::uint64_t chain = 0;
    std::uint64_t payload[4] = {};
    bool operator==(const Turn&) const = default;
  } turns[2];
};

template <class T>
std::string message_of(What what, std::uint32_t host, const T& value) {
  return std::string(bytes_of(MessageHead{what, host})) + std::string(bytes_of(value));
}

struct Reason {
  std::uint64_t id[2] = {};
  std::uint64_t code = 0;
};
struct StateOf {
  std::uint32_t rank = 0;
  std::uint32_t state = 0;
};

}  // namespace mirror

struct Mirror::Line {
  Line(Frames connection, std::uint32_t to) : frames(std::move(connection)), host(to) {}

  Frames frames;
  std::uint32_t host;
  Clock::time_point heard;
  std::uint32_t beats = 0;                   // that have come
  std::uint32_t answered = 0;                // of the beats that were sent: so many have come there
  std::deque<Clock::time_point> unanswered;  // when the others were sent
  std::uint32_t unacknowledged = 0;          // the last beats at which its system had not acknowledged everything
  bool broken = false;                       // a message to it was dropped
  bool stopped = false;                      // see set_stopped
};

// A group, as the leader's thread sees it. The leader need not be one of its ranks.
struct Mirror::View {
  group_blocks::Header* header = nullptr;
  group_blocks::RankBlock* blocks = nullptr;
  std::uint8_t* bells = nullptr;
  std::array<std::uint64_t, 2> id{};
  Extent control;
  std::vector<std::uint32_t> ranks;  // in the job
  std::vector<mirror::Block> sent;   // to all hosts; of the ranks of this host
  bool told = false;                 // that it was given up
};

// Takes values from a message.
class Mirror::Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  template <class T>
  bool take(T& value) {
    if (text_.size() < sizeof value) return false;
    text_.copy(reinterpret_cast<char*>(&value), sizeof value);
    text_.remove_prefix(sizeof value);
    return true;
  }
  std::string_view rest() const { return text_; }

 private:
  std::string_view text_;
};

}  // namespace gc3::core
