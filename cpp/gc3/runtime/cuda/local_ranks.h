// The ranks of a program that run on one device: their memory there, and how they are launched.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cuda/arena_layout.h"
#include "gc3/runtime/cuda/device.h"
#include "gc3/runtime/cuda/device/launch.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cuda {

// Shared by everything that runs a program: the word that stops it and the places where threadblocks say where they
// stood, in pinned memory that all devices reach.
class Watch {
 public:
  static Result<Watch> create(const std::shared_ptr<Device>& device, std::size_t threadblocks);
  Control& control() const { return *reinterpret_cast<Control*>(memory_.data()); }
  Stand* stands() const { return reinterpret_cast<Stand*>(memory_.data() + sizeof(Control)); }  // as Plan::threadblocks
  Stop stop() const;
  void stop(Stop why) const;
  void reset() const;

 private:
  Memory memory_;
  std::size_t threadblocks_ = 0;
};

class LocalRanks {
 public:
  // `ranks` in ascending order. Gets the memory of their arenas, unless it is `given`; `connect` must follow.
  static Result<std::unique_ptr<LocalRanks>> create(const interp::Plan& plan, const interp::FifoGeometry& geometry,
                                                    const ArenaLayout& layout, std::shared_ptr<Device> device,
                                                    std::vector<std::uint32_t> ranks, std::uint8_t* given = nullptr);
  // Bytes of the arenas of ranks, in whole units of what other processes can map.
  static std::uint64_t arena_bytes(const ArenaLayout& layout, const std::vector<std::uint32_t>& ranks);
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  // Where the arena of a rank of its own begins, and the allocation that holds them all.
  std::uint8_t* arena(std::uint32_t rank) const;
  const Memory& memory() const { return arenas_; }
  // The arenas of all ranks, as this device sees them. `system`: some are on other devices.
  Status connect(const std::vector<std::uint8_t*>& arenas, bool system);

  // The number of threadblocks, and whether the device can hold them at once.
  Status check_resident(const Kernels& kernels) const;
  // Gets the memory that a call needs beside its buffers. Where several devices take part this comes before any of
  // them launches: a device that others are mapped to may have to come to rest for it, and a rank that waits for one
  // that is not launched yet does not.
  Status reserve(const interp::Call& call, const interp::Run& run);
  // Puts a call on a stream: copies where the call needs them, the factors of premulsum, the kernel, the
  // division of avg.
  Status enqueue(const interp::Call& call, const interp::Run& run, const Kernels& kernels, const Watch& watch,
                 std::uint64_t timeout_ns, CUstream stream);
  // After a failure: all counters and FIFOs as at the beginning. Nothing of it may be running.
  Status reset() const;

  Device& device() const { return *device_; }
  const std::shared_ptr<Device>& shared_device() const { return device_; }

 private:
  LocalRanks(const interp::Plan& plan, const interp::FifoGeometry& geometry, const ArenaLayout& layout,
             std::shared_ptr<Device> device, std::vector<std::uint32_t> ranks);
  Status upload_program();
  Status upload_divisors();
  // The buffers of a call, or copies of them: padded ones where chunks must be whole, see PlanRank::copies_input.
  Status bind(const interp::Call& call, const interp::Run& run, Launch& launch, std::vector<interp::Copy>& copies);
  Result<std::uint8_t*> workspace(std::uint64_t bytes);
  Status divide(const interp::Call& call, const interp::Run& run, const Kernels& kernels, CUstream stream) const;
  // `stride`: bytes from block to block of the buffers of the launch.
  Status scale(const interp::Call& call, const Launch& launch, std::uint64_t stride, const Kernels& kernels,
               CUstream stream) const;
  // A kernel with a row of blocks per rank; `elems` of the longest.
  Status launch_rows(CUfunction kernel, std::uint64_t elems, void* argument, CUstream stream, const char* what) const;

  const interp::Plan& plan_;
  const interp::FifoGeometry& geometry_;
  const ArenaLayout& layout_;
  std::shared_ptr<Device> device_;
  std::vector<std::uint32_t> ranks_;
  std::vector<std::uint64_t> offsets_;       // of their arenas
  std::vector<std::uint32_t> threadblocks_;  // with steps, as indices of the plan
  bool system_ = false;
  bool fences_ = false;

  Memory arenas_;
  Memory steps_;
  Memory waits_;
  Memory records_;   // Threadblock per block of the grid
  Memory progress_;  // Halt, and Progress per block of the grid
  Memory divisors_;
  std::vector<std::uint64_t> first_divisor_;  // per rank of its own
  std::vector<Memory> workspaces_;            // scratch and copies; the last one is in use
};

}  // namespace gc3::cuda
