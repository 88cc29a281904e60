// The ranks of a program that run on one device: their memory and their launches.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cuda/arena_layout.h"
#include "gc3/runtime/cuda/copy_lanes.h"
#include "gc3/runtime/cuda/device.h"
#include "gc3/runtime/cuda/device/launch.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cuda {

// The state that all ranks of a program share, in pinned memory that all devices can access: the word that stops them,
// and the positions of threadblocks that were stopped.
class Watch {
 public:
  static Result<Watch> create(const std::shared_ptr<Device>& device, std::size_t threadblocks);
  Control& control() const { return *reinterpret_cast<Control*>(memory_.data()); }
  Stand* stands() const {
    return reinterpret_cast<Stand*>(memory_.data() + sizeof(Control));
  }  // in the order of Plan::threadblocks
  Stop stop() const;
  void stop(Stop why) const;
  void reset() const;

 private:
  Memory memory_;
  std::size_t threadblocks_ = 0;
};

// Other processes map memory in units of this size. Smaller allocations would share a unit with other data.
inline constexpr std::uint64_t kArenaUnit = std::uint64_t{2} << 20U;

class LocalRanks {
 public:
  // `ranks` must be in ascending order. Allocates memory for their arenas unless it is `given`. `connect` must follow.
  static Result<std::unique_ptr<LocalRanks>> create(const interp::Plan& plan, const ArenaLayout& layout,
                                                    std::shared_ptr<Device> device, std::vector<std::uint32_t> ranks,
                                                    std::uint8_t* given = nullptr);
  // The bytes of the ranks' arenas, in whole units that other processes can map.
  static std::uint64_t arena_bytes(const ArenaLayout& layout, const std::vector<std::uint32_t>& ranks);
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  // The beginning of the arena of one of its ranks; and the allocation of all of them.
  std::uint8_t* arena(std::uint32_t rank) const;
  const Memory& memory() const { return arenas_; }
  // Sets the arenas of all ranks, by their addresses on this device. `system`: some are on other devices.
  Status connect(const std::vector<std::uint8_t*>& arenas, bool system);

  const std::vector<std::uint32_t>& ranks() const { return ranks_; }

  // Fails if the device cannot hold all threadblocks at once; of a one-sided program `blocks`.
  Status check_resident(const Kernels& kernels) const { return check_resident(kernels, threadblocks_.size()); }
  Status check_resident(const Kernels& kernels, std::size_t blocks) const;
  // Allocates the memory that a call needs in addition to its buffers. With several devices it must be called for all
  // of them before any launch. An allocation may wait until mapped devices are idle, and a launched rank that waits for
  // one that is not launched yet would never be.
  Status reserve(const interp::Call& call, const interp::Run& run);
  // Puts a call on a stream: copies if the call needs them, the factors of premulsum, the kernel, and the division of
  // avg.
  Status enqueue(const interp::Call& call, const interp::Run& run, const Kernels& kernels, const Watch& watch,
                 std::uint64_t timeout_ns, CUstream stream);
  // The same in parts, for a caller that puts the messages on streams of copy engines instead of the kernel. Before
  // and behind them: copies, factors and the division.
  struct Prepared {
    Launch launch{};
    std::vector<interp::Copy> copies;
    std::uint64_t block = 0;   // bytes of a block of the call
    std::uint64_t stride = 0;  // and in the buffers of the launch
  };
  bool idle(const interp::Run& run) const { return threadblocks_.empty() || run.tiles == 0; }
  Status prepare(const interp::Call& call, const interp::Run& run, const Kernels& kernels, const Watch& watch,
                 std::uint64_t timeout_ns, CUstream stream, Prepared& made);
  Status finish(const interp::Call& call, const Prepared& made, const Kernels& kernels, CUstream stream) const;
  // Launches a kernel that waits for others. `bytes`: of the largest message, which a block moves at once.
  Status launch(CUfunction kernel, std::size_t blocks, std::uint64_t bytes, CUstream stream, void* argument) const;
  // After `connect`, if copy engines move the messages.
  Status add_lanes(const std::vector<std::uint8_t*>& arenas);
  CopyLanes* lanes() const { return lanes_.get(); }
  // From now on calls work on copies of the input and the output of its one rank, there; null: on the buffer itself.
  void share(const std::array<std::uint8_t*, 2>& copies) { shared_ = copies; }
  // What the guard of a stopped launch does, once, from the host.
  Status release_lanes(std::uint64_t tag) const;
  // After a failure: resets all counters and FIFOs. No launch may be running.
  Status reset();

  Device& device() const { return *device_; }
  const std::shared_ptr<Device>& shared_device() const { return device_; }

 private:
  LocalRanks(const interp::Plan& plan, const ArenaLayout& layout, std::shared_ptr<Device> device,
             std::vector<std::uint32_t> ranks);
  Status upload_program();
  Status upload_divisors();
  // Sets the buffers of a launch to those of the call or to copies, see Plan::copies.
  Status bind(const interp::Call& call, const interp::Run& run, Launch& launch, std::vector<interp::Copy>& copies);
  Result<std::uint8_t*> workspace(std::uint64_t bytes);
  Status divide(const interp::Call& call, const interp::Run& run, const Kernels& kernels, CUstream stream) const;
  // `stride`: the distance in bytes between blocks in the buffers of the launch.
  Status scale(const interp::Call& call, const Launch& launch, std::uint64_t stride, const Kernels& kernels,
               CUstream stream) const;
  // Launches a kernel with a row of blocks for each rank. `elems`: the elements of the longest row.
  Status launch_rows(CUfunction kernel, std::uint64_t elems, void* argument, CUstream stream, const char* what) const;

  const interp::Plan& plan_;
  const ArenaLayout& layout_;
  std::shared_ptr<Device> device_;
  std::vector<std::uint32_t> ranks_;
  std::vector<std::uint64_t> offsets_;       // of their arenas
  std::vector<std::uint32_t> threadblocks_;  // those with steps, as indices of the plan
  bool system_ = false;
  bool fences_ = false;
  std::array<std::uint8_t*, 2> shared_ = {};

  Memory arenas_;
  Memory steps_;
  Memory waits_;
  Memory records_;   // Threadblock per block of the grid
  Memory progress_;  // Halt, and Progress per block of the grid
  Memory divisors_;
  std::vector<std::uint64_t> first_divisor_;  // for each of its ranks
  std::vector<Memory> workspaces_;            // scratch and copies; the last one is in use
  std::unique_ptr<CopyLanes> lanes_;
};

}  // namespace gc3::cuda
