// A one-sided program on devices of this process: what the kernel of device/one_sided.h reads, counters and scratch.
#pragma once

#include <cstdint>
#include <memory>
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

  // Once the parts have all ranks.
  Status start(const Parts& parts);
  Result<interp::Run> run_of(const interp::Call& call) const;
  // Allocates the memory that a call needs in addition to its buffers, which are `call`'s.
  Status reserve(const interp::Run& run, const Parts& parts);
  // Fails if a device that another rank runs on has no access to a buffer of the call.
  Status check_access(const interp::Call& call, const interp::Run& run, const Parts& parts) const;
  Status check_resident(const LocalRanks& part, std::size_t number, const Kernels& kernels) const;
  // Puts a call on the parts' streams, none of which executes another call of the program meanwhile. Allocates nothing.
  Status enqueue(const interp::Call& call, const interp::Run& run, const Parts& parts,
                 const std::vector<Kernels>& kernels, const Watch& watch, std::uint64_t timeout_ns,
                 const std::vector<CUstream>& streams) const;
  // After a failure. No launch may be running.
  Status reset() const;
  // Adds where threadblocks have waited when they were stopped.
  void report(const Watch& watch, Diagnostic& problem) const;

 private:
  struct OnDevice {
    std::uint32_t blocks = 0;
    Memory steps, places, objects, initial, parties, scratch_chunks, threadblocks;
    Memory calls;
  };

  explicit OneSided(direct::Decoded decoded) : decoded_(std::move(decoded)), tables_(decoded_) {}
  Result<OnDevice> upload(const LocalRanks& part) const;

  direct::Decoded decoded_;
  OneSidedTables tables_;
  std::vector<OnDevice> parts_;
  Memory counters_;
  std::uint64_t stride_ = 0;               // of chunks in scratch
  std::vector<Memory> scratch_;            // of all parts so far: graphs may still use what was there before
  std::vector<std::uint8_t*> scratch_of_;  // by rank
};

}  // namespace gc3::cuda
