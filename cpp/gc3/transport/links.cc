#include "gc3/transport/links.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gc3/base/errors/processes.h"

namespace gc3::transport {
namespace {

template <class End>
End* find(const std::vector<std::unique_ptr<End>>& ends, LinkId link) {
  const auto at = std::ranges::lower_bound(ends, link, {}, [](const auto& end) { return end->link; });
  return at != ends.end() && (*at)->link == link ? at->get() : nullptr;
}

template <class End>
End& insert(std::vector<std::unique_ptr<End>>& ends, End end) {
  const auto at = std::ranges::lower_bound(ends, end.link, {}, [](const auto& e) { return e->link; });
  return **ends.insert(at, std::make_unique<End>(std::move(end)));
}

std::uint8_t* slot_of(const Inlet& inlet, std::uint64_t flag) {
  return inlet.data + Links::number_of(flag) % inlet.slots * inlet.slot_stride;
}

Diagnostic violates(const std::string& what) { return Diagnostic(ErrorCode::RankLost, "it has sent " + what); }

}  // namespace

Inlet& Links::add(Inlet inlet) {
  inlet.begun.assign(inlet.slots, 0);
  inlet.lengths.assign(inlet.slots, 0);
  inlet.held.assign(inlet.slots, nullptr);
  return insert(inlets_, std::move(inlet));
}

Outlet& Links::add(Outlet outlet) { return insert(outlets_, outlet); }

Result<Inlet*> Links::begin(std::uint32_t peer, LinkId link, std::uint64_t flag, std::uint64_t bytes) {
  Inlet* inlet = find(inlets_, link);
  if (inlet == nullptr && open_) inlet = open_(peer, link);
  if (inlet == nullptr || inlet->peer != peer) return violates("data for connection " + std::to_string(link));
  if (bytes > inlet->slot_bytes) {
    return violates(std::to_string(bytes) + " bytes for a slot of " + std::to_string(inlet->slot_bytes));
  }
  // Within the credit that this rank has given, into a slot that is empty.
  const std::uint64_t number = number_of(flag);
  const bool expected = number >= inlet->taken && number - inlet->credited < inlet->slots;
  if (!expected || inlet->begun[number % inlet->slots] == number + 1) {
    return violates("message " + std::to_string(number) + " of a connection on which message " +
                    std::to_string(inlet->taken) + " is next");
  }
  inlet->begun[number % inlet->slots] = number + 1;
  inlet->lengths[number % inlet->slots] = bytes;
  return inlet;
}

std::uint8_t* Links::place_of(const Inlet& inlet, std::uint64_t flag, std::uint64_t bytes) {
  const bool expected = number_of(flag) == inlet.expected && bytes == inlet.expected_bytes;
  return expected ? inlet.expected_at : slot_of(inlet, flag);
}

void Links::finish(Inlet& inlet, std::uint64_t flag, const void* at) {
  std::uint64_t* const arrival = inlet.arrivals + 2 * (number_of(flag) % inlet.slots);
  arrival[1] = at == slot_of(inlet, flag) ? 0 : kElsewhere | reinterpret_cast<std::uintptr_t>(at);
  arrival[0] = flag;
  ++inlet.arrived;
}

Status Links::credit(std::uint32_t peer, LinkId link, std::uint64_t taken) {
  Outlet* const outlet = find(outlets_, link);
  if (outlet == nullptr || outlet->peer != peer) return violates("credit for connection " + std::to_string(link));
  if (taken < *outlet->head || taken > outlet->sent) {
    return violates("credit for " + std::to_string(taken) + " of " + std::to_string(outlet->sent) + " messages");
  }
  *outlet->head = taken;
  return {};
}

}  // namespace gc3::transport
