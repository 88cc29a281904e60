// Runs a direct program whose ranks are all in this process: its memory and its workers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cpu/arena.h"
#include "gc3/runtime/cpu/average.h"
#include "gc3/runtime/cpu/idle.h"
#include "gc3/runtime/cpu/rank_memory.h"
#include "gc3/runtime/cpu/start_barrier.h"
#include "gc3/runtime/cpu/worker_pool.h"
#include "gc3/runtime/direct/data_mover.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/engine.h"

namespace gc3::direct {

struct JobOptions {
  std::uint32_t workers = 0;  // threads; 0: one per core; never more than ranks
  double timeout_s = 30;      // a run without progress for so long is given up
  bool pin = true;            // each worker keeps to its share of the cores of the thread that makes the job
};

class Job final : public interp::Engine<interp::Call> {
 public:
  // Refuses malformed programs, those that write to input out of place, and those that deadlock. It proves nothing
  // else.
  static Result<std::unique_ptr<Job>> create(const Program& program, const JobOptions& options = {});

  // After an error the job can be used again.
  Status run(const interp::Call& call, const interp::Interrupted& interrupted = {}) override;
  // Runs `calls` calls one after the other on the same buffers; a rank waits for no other one between two of them.
  // `ended`: called by the worker of a rank after each of its calls.
  Status run_calls(const interp::Call& call, std::uint32_t calls, const Machine::Note& ended = {},
                   const interp::Interrupted& interrupted = {});
  void abort() override { abort_asked_.store(true, std::memory_order_relaxed); }

  const Program& program() const { return decoded_.program; }
  // Of the plan only the collective, and the buffers of the ranks.
  const interp::Plan& plan() const override { return plan_; }
  // False in a process that was forked after the job was made: the threads exist only in the parent.
  bool usable() const { return pool_->alive(); }

 private:
  enum class Why : std::uint8_t { nothing, interrupted, timeout, deadlock, failed };
  struct alignas(interp::kCacheLine) Worker {
    Machine machine;
    std::atomic<std::uint64_t> progress{0};
  };

  // Nanoseconds of the steady clock.
  struct Times {
    std::int64_t start = 0;
    std::int64_t stop = 0;
  };

  Job(Decoded decoded, const JobOptions& options);
  Status start(const JobOptions& options);
  Status bind(const interp::Call& call, Shape& shape);
  // From the first worker's start to the last one's end.
  Result<std::vector<double>> times(const interp::Call& call, std::uint32_t warmup, std::uint32_t iterations,
                                    const interp::Interrupted& interrupted) override;
  // Runs `calls` calls so often; all workers begin each round together. Returns when each round began and ended.
  Result<std::vector<Times>> execute(const interp::Call& call, std::uint32_t rounds, std::uint32_t calls,
                                     const interp::Interrupted& interrupted, const Machine::Note& ended);
  // False: the run was given up.
  bool work(Worker& worker, DataMover& mover, std::uint32_t calls, const Machine::Note& begins,
            const Machine::Note& ended);
  void stop(Why why);
  Diagnostic explain() const;

  Decoded decoded_;
  double timeout_s_;
  interp::Plan plan_;
  cpu::Arena counters_;
  bool spoiled_ = false;  // a run was given up: nothing fits the counters
  cpu::RankMemory memory_;
  std::size_t stride_ = 0;  // of scratch
  std::vector<RankBuffers> buffers_;
  std::optional<cpu::Average> average_;  // made by the first call with avg

  std::mutex mutex_;  // held by the running call
  std::atomic<bool> abort_asked_{false};
  std::atomic<bool> stop_{false};
  std::atomic<Why> why_{Why::nothing};
  cpu::Doorbell doorbell_;
  std::uint32_t spins_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<cpu::StartBarrier> barrier_;
  std::unique_ptr<cpu::WorkerPool> pool_;  // last: its threads use all of the above
};

}  // namespace gc3::direct
