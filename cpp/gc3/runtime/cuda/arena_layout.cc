#include "gc3/runtime/cuda/arena_layout.h"

#include <algorithm>

#include "gc3/base/errors/common.h"
#include "gc3/runtime/cuda/device/lines.h"
#include "gc3/runtime/interp/checked_bytes.h"

namespace gc3::cuda {
namespace {

constexpr std::uint64_t kFifoBudget = std::uint64_t{1} << 30U;  // bytes of a program's slots, if possible
constexpr std::uint64_t kLeastSlot = 4096;

// A slot holds whole trips of a warp (LL128) or whole vectors.
struct Unit {
  std::uint64_t bytes;         // of a slot
  std::uint64_t data;          // data in them
  std::uint64_t default_slot;  // bytes
};

Unit unit_of(model::Protocol protocol) {
  using LL128Lines = Lines<interp::LL128, 2>;
  switch (protocol) {
    case model::Protocol::Simple:
    case model::Protocol::Pull:
    case model::Protocol::Copy:
      return {kVec, kVec, 512 * 1024};
    case model::Protocol::LL:
      return {Lines<interp::LL, 2>::kBytes, kVec, 64 * 1024};
    case model::Protocol::LL128:
      return {LL128Lines::kTripBytes, LL128Lines::kTrip * kVec, 256 * 1024};
  }
  return {};
}

}  // namespace

Result<interp::FifoGeometry> choose_geometry(const interp::Plan& plan, std::uint32_t slots, std::uint64_t slot_bytes) {
  const Unit unit = unit_of(plan.protocol);
  if (slot_bytes == 0) {
    const std::uint64_t all_slots = std::max<std::uint64_t>(plan.connections.size(), 1) * std::max(slots, 8U);
    const std::uint64_t least_data = std::uint64_t{plan.max_count} * 8;  // an element of the widest type per chunk
    const std::uint64_t least = (least_data + unit.data - 1) / unit.data * unit.bytes;
    slot_bytes = std::max({least, std::min(unit.default_slot, kFifoBudget / all_slots), kLeastSlot});
  }
  if (slot_bytes < unit.bytes) {
    return Diagnostic(ErrorCode::BadOption, "a slot of " + std::to_string(slot_bytes) + " bytes; " +
                                                std::string(model::name_of(plan.protocol)) + " on a device needs " +
                                                std::to_string(unit.bytes));
  }
  return interp::FifoGeometry::choose(plan, slots, slot_bytes - slot_bytes % unit.bytes, kFifoBudget);
}

std::uint64_t PinnedFifo::bytes(const interp::FifoGeometry& geometry) {
  constexpr std::uint64_t kWords = 2;  // of each slot: its flag, and the length of its message
  return sizeof(interp::Counter) + geometry.connection_bytes(kWords);
}

PinnedFifo PinnedFifo::at(std::uint8_t* base, const interp::FifoGeometry& geometry) {
  PinnedFifo fifo;
  fifo.head = reinterpret_cast<interp::Counter*>(base);
  fifo.slots = base + sizeof(interp::Counter);
  fifo.arrivals = reinterpret_cast<std::uint64_t*>(fifo.slots + geometry.slots_bytes());
  fifo.lengths = fifo.arrivals + geometry.slots;
  return fifo;
}

Result<ArenaLayout> ArenaLayout::create(const interp::Plan& plan, const interp::FifoGeometry& geometry,
                                        const std::vector<std::uint32_t>& hosts) {
  ArenaLayout layout;
  layout.pulls = plan.pulls;
  GC3_CHECK(interp::checked_bytes(geometry.connection_bytes(), plan.connections.size(), "the FIFOs"));
  for (const interp::PlanRank& rank : plan.ranks) layout.bytes.push_back(rank.tb_count * sizeof(interp::Counter));
  const auto take = [&](std::uint32_t rank, std::uint64_t wanted) {
    const std::uint64_t at = layout.bytes[rank];
    layout.bytes[rank] += interp::round_up(wanted, interp::kCacheLine);
    return at;
  };
  for (const interp::Connection& c : plan.connections) {
    const std::uint32_t sender = plan.threadblocks[c.sender_tb].rank;
    const std::uint32_t receiver = plan.threadblocks[c.receiver_tb].rank;
    Place place;
    if (!hosts.empty() && hosts[sender] != hosts[receiver]) {
      layout.connections.push_back(place);
      continue;
    }
    place.head = take(sender, sizeof(interp::Counter));
    place.slots = take(plan.pulls ? sender : receiver, geometry.slots_bytes());
    place.arrivals = take(receiver, geometry.slots * sizeof(std::uint64_t));
    layout.connections.push_back(place);
  }
  return layout;
}

Status ArenaLayout::add_copy_fifos(const interp::Plan& plan, std::uint32_t slots, std::uint64_t slot_bytes) {
  GC3_ASSIGN(copies, CopyFifos::create(plan, slots, slot_bytes, bytes));
  return {};
}

void ArenaLayout::connect(const interp::PlanThreadblock& tb, const std::vector<std::uint8_t*>& arenas,
                          interp::Task& task) const {
  const auto arrivals = [](std::uint8_t* at) { return reinterpret_cast<std::uint64_t*>(at); };
  const auto counter = [](std::uint8_t* at) { return reinterpret_cast<interp::Counter*>(at); };
  if (const auto found = pinned.find(tb.send_connection); found != pinned.end()) {
    const PinnedFifo& fifo = found->second;
    task.send = {fifo.arrivals, fifo.head, fifo.slots};
    task.lengths = fifo.lengths;
  } else if (tb.send_connection != kNone) {
    const Place& place = connections[tb.send_connection];
    std::uint8_t* const receiver = arenas[tb.send_peer];
    std::uint8_t* const own = arenas[tb.rank];
    task.send = {arrivals(receiver + place.arrivals), counter(own + place.head),
                 (pulls ? own : receiver) + place.slots};
  }
  if (const auto found = pinned.find(tb.recv_connection); found != pinned.end()) {
    task.recv = {found->second.arrivals, found->second.head, found->second.slots};
  } else if (tb.recv_connection != kNone) {
    const Place& place = connections[tb.recv_connection];
    std::uint8_t* const own = arenas[tb.rank];
    std::uint8_t* const sender = arenas[tb.recv_peer];
    task.recv = {arrivals(own + place.arrivals), counter(sender + place.head), (pulls ? sender : own) + place.slots};
  }
}

}  // namespace gc3::cuda
