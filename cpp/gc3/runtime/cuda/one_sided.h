// A one-sided program on devices: what the kernel of device/one_sided.h reads, and the memory that ranks access of each
// other. Its counters are in the ranks' arenas, its scratch in their rooms. Ranks in other processes do not reach the
// buffers of a call, so they get copies, which are in the room, too.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cuda/local_ranks.h"
#include "gc3/runtime/cuda/one_sided_tables.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/one_sided.h"

namespace gc3::cuda {

class OneSided {
 public:
  using Parts = std::vector<std::unique_ptr<LocalRanks>>;

  static Result<std::unique_ptr<OneSided>> create(const direct::Program& program);
  // Of the plan only the collective, and the buffers of the ranks.
  interp::Plan plan() const;
  std::size_t threadblocks() const { return decoded_.program.threadblocks.size(); }

  // Of each arena.
  std::uint64_t arena_bytes() const { return direct::Counters::bytes(decoded_.program); }
  // Once the parts have all ranks of this process. `arenas`: of all ranks, for each part.
  Status start(const Parts& parts, const std::vector<std::vector<std::uint8_t*>>& arenas);
  Result<interp::Run> run_of(const interp::Call& call) const;
  // Allocates the rooms that a call needs. Ranks in several processes do so themselves, all alike: if the room lacks
  // space, each makes one for chunks at `next_stride`, and `move` gets the rooms of all.
  Status reserve(const interp::Run& run, const Parts& parts);
  bool lacks_room(const interp::Run& run) const { return run.tiles != 0 && least_stride(run) > stride_; }
  std::uint64_t next_stride(const interp::Run& run) const { return std::max(least_stride(run), 2 * stride_); }
  std::uint64_t stride() const { return stride_; }
  Result<std::uint64_t> room_bytes(std::uint32_t rank, std::uint64_t stride) const;
  // `switched`: the address of all rooms through a switch; null: there is none.
  void move(std::uint64_t stride, const std::vector<std::uint8_t*>& rooms, std::uint8_t* switched, LocalRanks& own);
  // Fails if a device that another rank runs on has no access to a buffer of the call.
  Status check_access(const interp::Call& call, const interp::Run& run, const Parts& parts) const;
  Status check_resident(const LocalRanks& part, std::size_t number, const Kernels& kernels) const;
  // Puts a call on the parts' streams, none of which executes another call of the program meanwhile. Allocates nothing.
  Status enqueue(const interp::Call& call, const interp::Run& run, const Parts& parts,
                 const std::vector<Kernels>& kernels, const Watch& watch, std::uint64_t timeout_ns,
                 const std::vector<CUstream>& streams) const;
  // After a failure, once the arenas are empty. No launch may be running.
  Status reset() const;
  // Adds where threadblocks have waited when they were stopped.
  void report(const Watch& watch, Diagnostic& problem) const;
  // After a launch that found that the ranks' calls differ: which ranks have made another one.
  Diagnostic differing(const Watch& watch, const LocalRanks& own) const;

 private:
  struct OnDevice {
    std::uint32_t blocks = 0;
    Memory steps, places, objects, initial, parties, scratch_chunks, threadblocks, counters, peers;
    std::uint32_t peer_count = 0;
    Memory calls;
  };
  // Where the copies of input and output of a rank begin in its room, where its scratch, and where it ends. With
  // several processes it is the same for all ranks: a switch reaches the same place of all.
  using Room = std::array<std::uint64_t, 4>;

  explicit OneSided(direct::Decoded decoded) : decoded_(std::move(decoded)), tables_(decoded_) {}
  Result<OnDevice> upload(const LocalRanks& part, const std::vector<std::uint8_t*>& arenas) const;
  Status check_atomics(const LocalRanks& part, const std::vector<std::uint8_t*>& arenas) const;
  static std::uint64_t least_stride(const interp::Run& run);
  Result<Room> room_of(std::uint32_t rank, std::uint64_t stride) const;

  direct::Decoded decoded_;
  OneSidedTables tables_;
  std::vector<OnDevice> parts_;
  bool apart_ = false;            // the ranks are in several processes
  std::uint64_t stride_ = 0;      // of chunks in the rooms
  std::vector<Memory> rooms_;     // of all parts so far: graphs may still use what was there before
  std::vector<Buffers> in_room_;  // by rank
  std::optional<Buffers> switched_;
};

}  // namespace gc3::cuda
