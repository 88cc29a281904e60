// For tests: two ends of a transport in one process, and connections between them.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "gc3/transport/transport.h"

namespace gc3::transport::testing {

inline constexpr std::uint32_t kSlots = 4;
inline constexpr std::uint64_t kSlotBytes = 1 << 20;

// A connection from one end to another, and what an interpreter does at both.
class Line {
 public:
  Line(Transport& from, std::uint32_t sender, Transport& to, std::uint32_t receiver, LinkId link)
      : from_(from), to_(to), data_(kSlots * kSlotBytes), arrivals_(2 * kSlots) {
    Outlet outlet;
    outlet.peer = receiver;
    outlet.link = link;
    outlet.head = &head_;
    outlet_ = &from.links()->add(outlet);
    Inlet inlet;
    inlet.peer = sender;
    inlet.link = link;
    inlet.slots = kSlots;
    inlet.slot_bytes = inlet.slot_stride = kSlotBytes;
    inlet.data = data_.data();
    inlet.arrivals = arrivals_.data();
    inlet_ = &to.links()->add(std::move(inlet));
  }

  bool can_send() const { return sent_ < head_ + kSlots; }
  void send(const std::vector<std::uint8_t>& data) { from_.send(*outlet_, ++sent_, data.data(), data.size()); }
  // Says where the next message goes, if it has so many bytes.
  void expect(std::uint64_t bytes) {
    elsewhere_.resize(bytes + 1);
    inlet_->expected = taken_;
    inlet_->expected_at = elsewhere_.data() + 1;
    inlet_->expected_bytes = bytes;
  }
  // Whether it has come there.
  bool is_where_expected() const {
    return arrivals_[2 * (taken_ % kSlots) + 1] == (kElsewhere | reinterpret_cast<std::uintptr_t>(inlet_->expected_at));
  }
  bool has_arrived() const { return arrivals_[2 * (taken_ % kSlots)] == taken_ + 1; }
  std::vector<std::uint8_t> take() {
    const std::uint64_t slot = taken_++ % kSlots;
    const std::uint64_t where = arrivals_[2 * slot + 1];  // in the slot, or where the transport holds it
    const auto* const at =
        where == 0 ? data_.data() + slot * kSlotBytes : reinterpret_cast<const std::uint8_t*>(where & ~kElsewhere);
    std::vector<std::uint8_t> message(at, at + inlet_->lengths[slot]);
    to_.take(*inlet_);
    return message;
  }
  std::uint64_t head() const { return head_; }

 private:
  Transport& from_;
  Transport& to_;
  std::uint64_t head_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
  std::vector<std::uint8_t> data_;
  std::vector<std::uint64_t> arrivals_;
  std::vector<std::uint8_t> elsewhere_;
  Outlet* outlet_;
  Inlet* inlet_;
};

template <class Done>
bool until(Transport& a, Transport& b, Done done) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    a.progress();
    b.progress();
    if (std::chrono::steady_clock::now() > limit) return false;
  }
  return true;
}

inline bool meet(Transport& a, Transport& b) {
  REQUIRE(a.connect(1, b.address()).ok());
  REQUIRE(b.connect(0, a.address()).ok());
  return until(a, b, [&] { return a.connected(1) && b.connected(0); });
}

inline std::vector<std::uint8_t> message_of(std::uint64_t number, std::size_t bytes) {
  std::vector<std::uint8_t> message(bytes);
  std::iota(message.begin(), message.end(), static_cast<std::uint8_t>(number));
  return message;
}
inline std::vector<std::uint8_t> message_of(std::uint64_t number) {
  std::mt19937_64 random(number);
  const std::size_t sizes[] = {0, 1, 24, 1000, 16384, 65536, kSlotBytes};
  return message_of(number, sizes[random() % std::size(sizes)]);
}

// Sends on all lines and checks what arrives.
inline bool carries(std::vector<std::unique_ptr<Line>>& lines, Transport& a, Transport& b, std::uint64_t messages) {
  std::vector<std::uint64_t> sent(lines.size());
  std::vector<std::uint64_t> received(lines.size());
  std::vector<std::vector<std::vector<std::uint8_t>>> kept(lines.size());
  bool same = true;
  const bool all = until(a, b, [&] {
    std::uint64_t total = 0;
    for (std::size_t l = 0; l < lines.size(); ++l) {
      if (sent[l] < messages && lines[l]->can_send()) {
        kept[l].push_back(message_of(sent[l]++ + l));
        lines[l]->send(kept[l].back());
      }
      while (lines[l]->has_arrived()) {
        same = lines[l]->take() == message_of(received[l]++ + l) && same;
        // Some messages are expected, and some of these with another length.
        if ((received[l] + l) % 3 != 0) lines[l]->expect(message_of(received[l] + l + (received[l] + l) % 2).size());
      }
      total += received[l];
    }
    return total == messages * lines.size();
  });
  return all && same;
}

}  // namespace gc3::transport::testing
