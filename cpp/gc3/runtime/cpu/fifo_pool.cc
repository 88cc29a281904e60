#include "gc3/runtime/cpu/fifo_pool.h"

#include <algorithm>
#include <set>
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
  // Head, slots, their flags and loan words, and their offers.
  const std::uint64_t each = interp::kCacheLine + geometry.connection_bytes(kWordsPerSlot) +
                             interp::round_up(geometry.slots * sizeof(Offer), interp::kCacheLine);
  if (links_ != nullptr) {
    GC3_CHECK(open_between_hosts(missing, open, geometry, each, interrupted));
    if (missing.empty()) return {};
  }
  const std::string purpose = "the FIFOs of " + std::to_string(missing.size()) + " connections";
  GC3_CHECK(interp::checked_bytes(each, missing.size(), purpose));
  // By receiver, who takes the memory: a sender's writes need not wait for memory that is far away, but reads do.
  std::ranges::stable_sort(missing, {}, [](const Key& connection) { return connection[1]; });
  std::vector<std::uint64_t> parts(group_.size());
  for (const Key& connection : missing) parts[connection[1]] += each;
  for (std::uint64_t& part : parts) part = core::whole_pages(part);
  GC3_ASSIGN(core::Mapping memory, group_.allocate(parts, purpose, interrupted));
  std::size_t from = 0;
  for (std::uint32_t receiver = 0, i = 0; receiver < parts.size(); ++receiver) {
    if (!group_.is_here(receiver)) {
      // Open where its ranks are: what is missing must be the same on all hosts.
      for (; i < missing.size() && missing[i][1] == receiver; ++i) open[missing[i]] = {};
      continue;
    }
    if (receiver == group_.rank()) memory.populate(from, parts[receiver]);
    for (std::size_t at = from; i < missing.size() && missing[i][1] == receiver; ++i, at += each) {
      auto* head = reinterpret_cast<interp::Counter*>(memory.data() + at);
      std::uint8_t* slots = memory.data() + at + interp::kCacheLine;
      auto* arrivals = reinterpret_cast<std::uint64_t*>(slots + geometry.slots_bytes());
      open[missing[i]] = {{arrivals, head, slots, 0, 0, 0}, {arrivals, head, slots, 0, 0}, nullptr, nullptr};
      if (missing[i][0] == group_.rank()) memory.populate(at, each);
    }
    from += parts[receiver];
  }
  memory_.push_back(std::move(memory));
  return {};
}

Status FifoPool::open_between_hosts(std::vector<Key>& missing, std::map<Key, Ends>& open, const FifoGeometry& geometry,
                                    std::uint64_t bytes, const core::Interrupted& interrupted) {
  const auto first =
      std::stable_partition(missing.begin(), missing.end(), [&](const Key& k) { return !links_->apart(k[0], k[1]); });
  if (first == missing.end()) return {};
  const std::vector<Key> between(first, missing.end());
  missing.erase(first, missing.end());
  std::set<std::uint32_t> peers;
  for (const Key& k : between) {
    if (k[0] == group_.rank()) peers.insert(k[1]);
    if (k[1] == group_.rank()) peers.insert(k[0]);
  }
  GC3_CHECK(links_->connect({peers.begin(), peers.end()}, interrupted));
  for (const Key& k : between) {
    Result<Ends> one = links_->open(k[0], k[1], geometry, bytes);
    if (!one.ok()) return group_.give_up(one.error());  // the others wait for this rank below
    open[k] = one.value();
  }
  // No rank sends before its receiver has opened the connection.
  GC3_CHECK(group_.exchange({}, interrupted));
  return {};
}

void FifoPool::change_holder(ProcessProgram& program) {
  if (holder_ != nullptr) holder_->release();
  program.take();
  holder_ = &program;
}

}  // namespace gc3::cpu
