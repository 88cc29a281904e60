#include "gc3/runtime/cpu/fifo_pool.h"

#include <string>
#include <utility>

#include "gc3/runtime/cpu/arena.h"
#include "gc3/runtime/cpu/offer.h"
#include "gc3/runtime/cpu/process_program.h"
#include "gc3/runtime/interp/checked_bytes.h"

namespace gc3::cpu {
namespace {

constexpr std::uint64_t kWordsPerSlot = 2;  // the flag, and the loan word

}  // namespace

FifoPool::Key FifoPool::key(const interp::Plan& plan, std::uint32_t connection) {
  const interp::PlanThreadblock& sender = plan.threadblocks[plan.connections[connection].sender_tb];
  return {sender.rank, sender.send_peer, sender.channel};
}

Status FifoPool::open(const interp::Plan& plan, const FifoGeometry& geometry, const core::Interrupted& interrupted) {
  std::map<Key, Ends>& open = connections_[geometry];
  std::vector<Key> missing;
  for (std::uint32_t c = 0; c < plan.connections.size(); ++c) {
    if (!open.contains(key(plan, c))) missing.push_back(key(plan, c));
  }
  if (missing.empty()) return {};
  const std::string purpose = "the FIFOs of " + std::to_string(missing.size()) + " connections";
  // Head, slots, their flags and loan words, and their offers.
  const std::uint64_t each = interp::kCacheLine + geometry.connection_bytes(kWordsPerSlot) +
                             interp::round_up(geometry.slots * sizeof(Offer), interp::kCacheLine);
  GC3_ASSIGN(const std::size_t bytes, interp::checked_bytes(each, missing.size(), purpose));
  GC3_ASSIGN(core::Mapping memory, group_.allocate(bytes, purpose, interrupted));
  for (std::size_t i = 0; i < missing.size(); ++i) {
    std::uint8_t* at = memory.data() + i * each;
    auto* head = reinterpret_cast<interp::Counter*>(at);
    std::uint8_t* slots = at + interp::kCacheLine;
    auto* arrivals = reinterpret_cast<std::uint64_t*>(slots + geometry.slots_bytes());
    open[missing[i]] = {{arrivals, head, slots, 0, 0, 0}, {arrivals, head, slots, 0, 0}};
    if (missing[i][0] == group_.rank() || missing[i][1] == group_.rank()) memory.populate(i * each, each);
  }
  memory_.push_back(std::move(memory));
  return {};
}

void FifoPool::change_holder(ProcessProgram& program) {
  if (holder_ != nullptr) holder_->release();
  program.take();
  holder_ = &program;
}

}  // namespace gc3::cpu
