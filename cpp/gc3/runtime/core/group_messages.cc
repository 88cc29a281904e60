// What a group does for messages between two of its ranks, which are no calls in the group's order.
#include <algorithm>

#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/sharing/group_blocks.h"

namespace gc3::core {

Group::Pipe& Group::pipe_of(std::uint32_t from, std::uint32_t to) const {
  auto* const blocks_end = reinterpret_cast<std::uint8_t*>(&block(size()));
  auto* const pipes = reinterpret_cast<Pipe*>(blocks_end + Bells::bytes(size()));
  return pipes[std::size_t{from} * size() + to];
}

Result<Mapping> Group::open_pipe(std::uint32_t to, std::uint64_t bytes) {
  GC3_ASSIGN(const Extent extent, job_->allocate(bytes, "messages between two ranks"));
  Result<Mapping> mapping = job_->map(extent);
  if (!mapping.ok()) {
    job_->discard(extent);
    return mapping;
  }
  mapping.value().populate(0, bytes);
  Pipe& pipe = pipe_of(rank_, to);
  store(pipe.bytes, extent.bytes);
  store(pipe.offset, extent.offset, std::memory_order_release);  // with the other word; the memory is zeros
  return mapping;
}

Result<Mapping> Group::find_pipe(std::uint32_t from) const {
  const Pipe& pipe = pipe_of(from, rank_);
  const std::uint64_t offset = load(pipe.offset, std::memory_order_acquire);
  if (offset == 0) return Mapping();
  GC3_ASSIGN(Mapping mapping, job_->map({offset, load(pipe.bytes)}));
  mapping.populate(0, mapping.size());
  return mapping;
}

void Group::announce(const Awaits& awaits) {
  store(own_->awaits[1], static_cast<std::uint32_t>(awaits.tag));
  store(own_->awaits[2], awaits.bytes);
  store(own_->awaits[0], static_cast<std::uint64_t>(awaits.what) | std::uint64_t{awaits.peer} << 8U);
}

Group::Awaits Group::awaits(std::uint32_t rank) const {
  const RankBlock& of = block(rank);
  const std::uint64_t first = load(of.awaits[0]);
  Awaits found;
  found.what = static_cast<Awaits::What>(first & 0xffU);
  found.peer = static_cast<std::uint32_t>(first >> 8U);
  found.tag = static_cast<std::int32_t>(static_cast<std::uint32_t>(load(of.awaits[1])));
  found.bytes = load(of.awaits[2]);
  return found;
}

Group::Presence Group::presence(std::uint32_t rank) const {
  // acquire: what it has sent before it left, or ended, is visible afterwards.
  const auto has_left = [&] { return load(block(rank).left, std::memory_order_acquire) == kLeft; };
  if (has_left()) return Presence::left;
  if (!job_->dead({members_[rank]}).empty()) return has_left() ? Presence::left : Presence::ended;
  return Presence::here;
}

}  // namespace gc3::core
