// The CPU engine whose ranks run on threads of this process: a program with its FIFOs, scratch and a pool of workers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/runtime/cpu/arena.h"
#include "gc3/runtime/cpu/average.h"
#include "gc3/runtime/cpu/computing.h"
#include "gc3/runtime/cpu/rank_memory.h"
#include "gc3/runtime/cpu/recording.h"
#include "gc3/runtime/cpu/runner.h"
#include "gc3/runtime/cpu/start_barrier.h"
#include "gc3/runtime/cpu/v_memory.h"
#include "gc3/runtime/cpu/worker_pool.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/engine.h"
#include "gc3/runtime/interp/fifo_geometry.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cpu {

using interp::Call;
using interp::FifoGeometry;
using interp::Interrupted;

struct EngineOptions {
  std::uint32_t slots = 0;            // FIFO slots per connection; 0: 8, or more if the program needs more
  std::uint64_t slot_bytes = 0;       // bytes of a slot in memory, including flags; 0: chosen by protocol
  std::uint32_t workers = 0;          // threads; 0: one per core; never more than ranks
  double timeout_s = 30;              // a run without progress for so long is given up
  std::optional<std::uint64_t> seed;  // deterministic: one worker, one step of a random threadblock at a time
  bool pin = true;                    // each worker keeps to its share of the cores of the thread that makes the engine
};

class ThreadsEngine final : public interp::Engine<Call> {
 public:
  static Result<std::unique_ptr<ThreadsEngine>> create(const ir::Program& program, const EngineOptions& options);

  // After an error the engine can be used again.
  Status run(const Call& call, const Interrupted& interrupted = {}) override;
  // Each worker records an equal share of `most`.
  Result<Recording> record(const Call& call, std::size_t most, const Interrupted& interrupted = {}) override;
  void abort() override;
  // Runs a program that computes once: the call of each rank, and the function that is called for each application, by
  // the thread that executes its step. After an error, as above.
  Status compute(std::span<const VRankCall> ranks, Computing::Function function, const Interrupted& interrupted = {});

  // False in a process that was forked after the engine was made: the threads exist only in the parent.
  bool usable() const { return pool_->alive(); }

  const interp::Plan& plan() const override { return plan_; }
  std::uint32_t slots() const { return geometry_.slots; }
  std::uint64_t slot_bytes() const { return geometry_.slot_bytes; }
  std::uint32_t workers() const { return static_cast<std::uint32_t>(runners_.size()); }

 private:
  using RankWork = std::function<void(std::uint32_t)>;
  enum class Why : std::uint8_t { nothing, interrupted, timeout, deadlock, compute, failed };
  // Nanoseconds of the steady clock.
  struct Times {
    std::int64_t start = 0;
    std::int64_t stop = 0;
  };

  ThreadsEngine(interp::Plan plan, const EngineOptions& options);
  Status start_workers(const EngineOptions& options);
  // From the first worker's start to the last one's end.
  Result<std::vector<double>> times(const Call& call, std::uint32_t warmup, std::uint32_t iterations,
                                    const Interrupted& interrupted) override;
  // Allocates new memory for the FIFOs, and sets both ends of each connection to message 0.
  Status open_fifos();
  // Returns when each run began and ended. With recorders, one for each worker, the runs are recorded.
  Result<std::vector<Times>> execute(const Call& call, std::uint32_t iterations, const Interrupted& interrupted,
                                     std::span<Recorder> recorders = {});
  // Runs what is bound. `finish`: of a rank that has ended, after `begin` of a rank that begins.
  Result<std::vector<Times>> execute_bound(interp::Run run, std::uint32_t iterations, const Interrupted& interrupted,
                                           const Kernel& kernel, const RankWork& begin, const RankWork& finish,
                                           std::span<Recorder> recorders);
  Status bind_computing(std::span<const VRankCall> ranks, interp::Run& run);
  void work(std::uint32_t worker, const interp::Run& run, const Kernel& kernel, const RankWork& begin,
            const RankWork& finish, std::vector<Times>& times, Recorder* recorder);
  void stop(Why why);
  std::uint64_t progress() const;
  Diagnostic explain(const interp::Run& run) const;

  interp::Plan plan_;
  FifoGeometry geometry_;
  double timeout_s_ = 0;
  std::optional<std::uint64_t> seed_;

  std::vector<interp::Task> tasks_;
  std::vector<interp::Counter> semaphores_;
  std::vector<interp::Counter> heads_;
  Arena fifos_;
  bool fifos_open_ = false;
  RankMemory memory_;
  std::optional<Average> average_;  // made by the first call with avg
  std::uint64_t tiles_run_ = 0;     // in all runs so far
  std::vector<VMemory> v_memory_;   // of a program that computes, by rank
  std::vector<interp::VRun> v_runs_;
  Computing computing_;

  std::mutex mutex_;  // held by the running call
  std::atomic<bool> abort_asked_{false};
  RunControl control_;
  std::atomic<Why> why_{Why::nothing};
  std::vector<std::unique_ptr<Runner>> runners_;
  std::unique_ptr<StartBarrier> barrier_;
  std::unique_ptr<WorkerPool> pool_;  // last: its threads use all of the above
};

}  // namespace gc3::cpu
