// A one-sided program on devices of this process: what the kernel of device/one_sided.h reads, counters and scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cuda/local_ranks.h"
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
  Result<interp::Run> run_of(const interp::Plan& plan, const interp::Call& call) const;
  Status check_resident(const LocalRanks& part, std::size_t number, const Kernels& kernels) const;
  // Puts a call on the parts' streams, none of which executes another call of the program meanwhile.
  Status enqueue(const interp::Call& call, const interp::Run& run, const Parts& parts,
                 const std::vector<Kernels>& kernels, const Watch& watch, std::uint64_t timeout_ns,
                 const std::vector<CUstream>& streams);
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

  explicit OneSided(direct::Decoded decoded) : decoded_(std::move(decoded)) {}
  Result<OnDevice> upload(const LocalRanks& part) const;
  // Memory that begins as zeros, for chunks of `stride` bytes. What was there before is kept for graphs.
  Status grow_scratch(const Parts& parts, std::uint64_t stride);

  direct::Decoded decoded_;
  std::vector<OnDevice> parts_;
  Memory counters_;
  std::uint64_t stride_ = 0;
  std::vector<Memory> scratch_;            // of all parts so far, the newest last
  std::vector<std::uint8_t*> scratch_of_;  // by rank
};

}  // namespace gc3::cuda
