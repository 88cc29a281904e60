// The layout of the memory that a rank gives to a program: its arena. It is the same on every rank, so the address of
// an arena determines all addresses in it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cuda/copy_fifos.h"
#include "gc3/runtime/interp/fifo_geometry.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cuda {

// The FIFOs of a program on a device; values that are 0 are chosen.
Result<interp::FifoGeometry> choose_geometry(const interp::Plan& plan, std::uint32_t slots, std::uint64_t slot_bytes);

// A rank's end of a connection to another host: a FIFO of its own in pinned memory, see proxy.h.
struct PinnedFifo {
  // The bytes of one, and its parts in that memory.
  static std::uint64_t bytes(const interp::FifoGeometry& geometry);
  static PinnedFifo at(std::uint8_t* base, const interp::FifoGeometry& geometry);

  interp::Counter* head = nullptr;
  std::uint8_t* slots = nullptr;
  std::uint64_t* arrivals = nullptr;
  std::uint64_t* lengths = nullptr;
};

struct ArenaLayout {
  // A connection: the slots and their flags are in the receiver's arena, the credits in the sender's. If receivers
  // pull, the slots are in the sender's, too.
  struct Place {
    std::uint64_t head = 0;      // in the sender's arena
    std::uint64_t slots = 0;     // in the receiver's, or the sender's
    std::uint64_t arrivals = 0;  // in the receiver's
  };

  // `hosts`: of each rank, a number; empty: all are on one. Connections between hosts are in no arena.
  static Result<ArenaLayout> create(const interp::Plan& plan, const interp::FifoGeometry& geometry,
                                    const std::vector<std::uint32_t>& hosts = {});
  // Adds the FIFOs of copy engines. Values that are 0 are chosen.
  Status add_copy_fifos(const interp::Plan& plan, std::uint32_t slots, std::uint64_t slot_bytes);

  // The ends of the connections of a threadblock, at their first message. `arenas`: by rank.
  void connect(const interp::PlanThreadblock& tb, const std::vector<std::uint8_t*>& arenas, interp::Task& task) const;

  bool pulls = false;
  std::optional<CopyFifos> copies;
  std::vector<Place> connections;
  std::map<std::uint32_t, PinnedFifo> pinned;  // by connection: those of this rank to other hosts
  std::vector<std::uint64_t> bytes;            // by rank; the semaphores of a rank's threadblocks come first
};

}  // namespace gc3::cuda
