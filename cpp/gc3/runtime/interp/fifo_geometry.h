// The sizes of a program's FIFOs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "gc3/base/result.h"
#include "gc3/model/types.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::interp {

struct FifoGeometry {
  model::Protocol protocol = model::Protocol::Simple;
  std::uint32_t slots = 0;       // per connection
  std::uint64_t slot_bytes = 0;  // of a slot in memory, flags included
  std::uint64_t slot_data = 0;   // bytes of data a slot holds

  // An extra line: with a stride of a power of two, the first lines of all slots would compete for the same cache sets.
  std::uint64_t slot_stride() const { return (slot_bytes / kCacheLine + 2) * kCacheLine; }
  // The slots of a connection. After them each slot has as many words as the engine needs, one of which is the flag of
  // arrival (simple.h).
  std::uint64_t slots_bytes() const { return slots * slot_stride(); }
  std::uint64_t connection_bytes(std::uint64_t words = 1) const {
    return slots_bytes() + round_up(slots * words * sizeof(std::uint64_t), kCacheLine);
  }
  bool operator<(const FifoGeometry& other) const {
    return std::tie(protocol, slots, slot_bytes) < std::tie(other.protocol, other.slots, other.slot_bytes);
  }

  // Chooses values that are 0: at least 8 slots, or as many as the program needs; slots whose total stays within
  // `budget_bytes` if possible. The same on every rank.
  static Result<FifoGeometry> choose(const Plan& plan, std::uint32_t slots, std::uint64_t slot_bytes,
                                     std::uint64_t budget_bytes);
  // Fails if connections of these FIFOs between hosts are not possible.
  Status check_between_hosts() const;
  // How `count` elements of a block are cut, or why no tile fits a slot.
  Result<Tiling> tiling(const Plan& plan, std::uint64_t count, std::size_t elem_bytes) const;
};

// The part of a call of `count` elements of a block that is the same for all threadblocks, except the engine's
// counters: first_tile, tag.
Result<Run> make_run(const Plan& plan, const FifoGeometry& geometry, std::uint64_t count, std::size_t elem_bytes);

}  // namespace gc3::interp
