// Shared by the engines of one process: a program, the call it is set up for, and the explanation of a failed run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/runtime/cuda/arena_layout.h"
#include "gc3/runtime/cuda/local_ranks.h"
#include "gc3/runtime/cuda/one_sided.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cuda {

struct Options {
  std::uint32_t slots = 0;       // FIFO slots per connection; 0: 8, or more if the program needs more
  std::uint64_t slot_bytes = 0;  // of a slot, flags included; 0: by protocol
  double timeout_s = 30;         // a wait on the device that lasts longer stops everything
  // Of each rank, the number of its host; empty: all ranks are on one.
  std::vector<std::uint32_t> hosts = {};
};

// The parts that run a program here, each on its device.
class Launcher {
 public:
  static Result<std::unique_ptr<Launcher>> create(const ir::Program& program, const Options& options);
  static Result<std::unique_ptr<Launcher>> create(const ir::direct::Program& program, const Options& options);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Before `start`: the ranks that run on a device, and memory for their arenas if the caller provides it.
  Status add(const std::shared_ptr<Device>& device, std::vector<std::uint32_t> ranks, std::uint8_t* arenas = nullptr);
  // The addresses of the arenas of all ranks, for each part; `system`: more than one device takes part. `pinned`: see
  // ArenaLayout. `copies`: whether the devices of all ranks can let copy engines move messages.
  Status start(const std::vector<std::vector<std::uint8_t*>>& arenas, bool system, bool copies,
               std::map<std::uint32_t, PinnedFifo> pinned = {});

  // Puts a call on the parts' streams and returns. `tag`: 16 bits on which all ranks agree, see interp/fifo.h. A
  // failure on the device is reported by a later call, or by `wait`.
  Status enqueue(const interp::Call& call, std::uint64_t tag, const std::vector<CUstream>& streams);
  // Allocates the memory that such a call needs on each part's device.
  Status reserve(const interp::Call& call);
  // Waits until the enqueued calls are finished; `interrupted`, called regularly, stops it.
  template <class Interrupted>
  Status wait(const Interrupted& interrupted);
  // Why a launch since the last check has failed, if one has. The counters are then reset if this object has all ranks;
  // others may still write to the arenas of those here, so that their counters differ for good.
  Status check();
  // Ends the running launches, and all later ones until `check`.
  void stop() const { watch_.stop(Stop::asked); }
  bool busy() const;
  // Whether copy engines move the messages of calls that are not captured. If a program with the protocol Copy is
  // executed by threadblocks, `why_not` says why.
  bool uses_copy_engines() const { return !lane_steps_.empty(); }
  const std::string& why_not() const { return why_not_; }

  // Loads the kernels of a type, and fails if a device cannot hold all threadblocks.
  Status load(model::DataType type) const;
  // Null: the program has messages.
  OneSided* one_sided() const { return one_sided_.get(); }
  Result<interp::Run> run_of(const interp::Call& call, std::uint64_t tag, bool copies) const;

  const interp::Plan& plan() const { return plan_; }
  const interp::FifoGeometry& geometry() const { return geometry_; }
  const ArenaLayout& layout() const { return layout_; }
  const std::vector<std::unique_ptr<LocalRanks>>& parts() const { return parts_; }

 private:
  // A step in the order of submission, and the part that has it.
  struct Submitted {
    std::size_t part = 0;
    LaneStep step;
  };

  explicit Launcher(interp::Plan plan) : plan_(std::move(plan)) {}
  static Status check_options(const Options& options);
  Status plan_copies(const Options& options);
  // The kernels of a type for a part; if they move the messages, all threadblocks must fit.
  Result<Kernels> kernels_of(std::size_t part, model::DataType type, bool copies) const;
  Status launch_copies(const interp::Call& call, const interp::Run& run, const std::vector<Kernels>& kernels,
                       const std::vector<CUstream>& streams);
  // Adds steps to the lanes, from the `submitted`-th on, as many as may be added without a guard.
  Status add_copies(std::uint64_t tiles, std::uint64_t& submitted);
  std::uint64_t timeout_ns() const { return static_cast<std::uint64_t>(timeout_s_ * 1e9); }
  Diagnostic explain(Stop why) const;
  Status failure() const;       // what the driver says about the last launches
  void settle() const;          // waits until no launch of this object runs
  Status wait_for_end() const;  // after a stop: also waits until no captured launch runs
  Status start_afresh();        // after a stop: resets the counters, see check

  interp::Plan plan_;
  interp::FifoGeometry geometry_;
  ArenaLayout layout_;
  double timeout_s_ = 0;
  Watch watch_;
  std::vector<std::unique_ptr<LocalRanks>> parts_;
  std::vector<Event> done_;                      // per part, after its last launch outside of captures
  std::vector<unsigned long long> last_stream_;  // the stream of that: handles are reused when streams have gone
  std::vector<bool> launched_;
  std::size_t ranks_ = 0;  // of all parts
  bool captured_ = false;  // into graphs, which are launched elsewhere
  interp::Run last_run_;
  std::unique_ptr<OneSided> one_sided_;
  std::vector<LaneStep> order_;        // of all ranks, for lanes; see copy_lanes.h
  std::vector<Submitted> lane_steps_;  // those of the parts; empty: kernels move all messages
  std::string why_not_;
  bool unguarded_ = false;  // some lanes have no guard, because the driver has failed
};

template <class Interrupted>
Status Launcher::wait(const Interrupted& interrupted) {
  constexpr int kLooks = 64;  // on the device, between two checks of the caller's requests
  for (int looks = 1; busy(); ++looks) {
    if (looks % kLooks == 0 && interrupted && interrupted()) stop();
    std::this_thread::yield();
  }
  return check();
}

}  // namespace gc3::cuda
