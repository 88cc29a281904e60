// The layout of the memory that a rank gives to a program: its arena. It is the same on every rank, so the address of
// an arena determines all addresses in it.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/interp/fifo_geometry.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cuda {

// The FIFOs of a program on a device; values that are 0 are chosen.
Result<interp::FifoGeometry> choose_geometry(const interp::Plan& plan, std::uint32_t slots, std::uint64_t slot_bytes);

struct ArenaLayout {
  // A connection: the slots and their flags are in the receiver's arena, the credits in the sender's.
  struct Place {
    std::uint64_t head = 0;      // in the sender's arena
    std::uint64_t slots = 0;     // in the receiver's
    std::uint64_t arrivals = 0;  // in the receiver's
  };

  static Result<ArenaLayout> create(const interp::Plan& plan, const interp::FifoGeometry& geometry);

  // The ends of the connections of a threadblock, at their first message. `arenas`: by rank.
  void connect(const interp::PlanThreadblock& tb, const std::vector<std::uint8_t*>& arenas, interp::Task& task) const;

  std::vector<Place> connections;
  std::vector<std::uint64_t> bytes;  // by rank; the semaphores of a rank's threadblocks come first
};

}  // namespace gc3::cuda
