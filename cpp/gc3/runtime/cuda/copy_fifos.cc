#include "gc3/runtime/cuda/copy_fifos.h"

#include <algorithm>

#include "gc3/base/errors/common.h"
#include "gc3/runtime/interp/checked_bytes.h"

namespace gc3::cuda {
namespace {

// Every message costs some microseconds, so slots are larger than those of kernels, and fewer.
constexpr std::uint32_t kSlots = 2;
constexpr std::uint64_t kSlotBytes = std::uint64_t{8} << 20U;
constexpr std::uint64_t kBudget = std::uint64_t{1} << 30U;  // bytes of a program's slots, if possible

}  // namespace

Result<CopyFifos> CopyFifos::create(const interp::Plan& plan, std::uint32_t slots, std::uint64_t slot_bytes,
                                    std::vector<std::uint64_t>& bytes) {
  CopyFifos fifos;
  if (slots == 0) slots = std::max(plan.slots, kSlots);
  if (slot_bytes == 0) {
    const std::uint64_t all_slots = std::max<std::uint64_t>(plan.connections.size(), 1) * slots;
    const std::uint64_t least = std::max<std::uint64_t>(std::uint64_t{plan.max_count} * model::kMostElemBytes, 4096);
    slot_bytes = interp::round_up(std::max(least, std::min(kSlotBytes, kBudget / all_slots)), interp::kCacheLine);
  }
  GC3_ASSIGN(fifos.geometry, interp::FifoGeometry::choose(plan, slots, slot_bytes, kBudget));
  GC3_CHECK(interp::checked_bytes(fifos.geometry.slots_bytes(), plan.connections.size(), "the slots of copy engines"));
  fifos.ranks.resize(plan.ranks.size());
  fifos.connections.resize(plan.connections.size());
  const auto sender = [&](std::size_t c) { return plan.threadblocks[plan.connections[c].sender_tb].rank; };
  const auto receiver = [&](std::size_t c) { return plan.threadblocks[plan.connections[c].receiver_tb].rank; };
  for (std::size_t c = 0; c < plan.connections.size(); ++c) {
    Words& from = fifos.ranks[sender(c)];
    fifos.connections[c].taken = 1 + from.counters++;
    Words& to = fifos.ranks[receiver(c)];
    fifos.connections[c].arrivals = 1 + to.counters;
    fifos.connections[c].tags = to.slots;
    to.counters += slots;
    to.slots += slots;
  }
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    bytes[r] = interp::round_up(bytes[r], interp::kCacheLine);
    fifos.ranks[r].at = bytes[r];
    bytes[r] += interp::round_up(fifos.ranks[r].bytes(), interp::kCacheLine);
  }
  for (std::size_t c = 0; c < plan.connections.size(); ++c) {
    Connection& connection = fifos.connections[c];
    const Words& to = fifos.ranks[receiver(c)];
    connection.tags += 1 + to.counters;
    connection.spoilt = connection.tags + to.slots;
    connection.slots = bytes[receiver(c)];
    bytes[receiver(c)] += fifos.geometry.slots_bytes();
  }
  return fifos;
}

}  // namespace gc3::cuda
