// Runs a direct program whose ranks are all in this process: its memory and its workers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cpu/arena.h"
#include "gc3/runtime/cpu/idle.h"
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

class Job {
 public:
  // Refuses malformed programs, those that write to input that is no output, and those that deadlock. It proves
  // nothing else.
  static Result<std::unique_ptr<Job>> create(const Program& program, const JobOptions& options = {});

  // Runs `calls` calls one after the other on the same buffers; a rank does not wait for others between two of them.
  // `ended`: called by the worker of a rank after each of its calls. After an error the outputs are unspecified, and
  // the job can be used again.
  Status run(const interp::Call& call, std::uint32_t calls = 1, const interp::Interrupted& interrupted = {},
             const Machine::Ended& ended = {});

  const Program& program() const { return decoded_.program; }

 private:
  enum class Why : std::uint8_t { nothing, interrupted, timeout, deadlock };
  struct alignas(interp::kCacheLine) Worker {
    Machine machine;
    std::atomic<std::uint64_t> progress{0};
  };

  Job(Decoded decoded, const JobOptions& options);
  Status start(const JobOptions& options);
  Status check(const interp::Call& call) const;
  Status bind(const interp::Call& call, Shape& shape);
  void work(Worker& worker, DataMover& mover, std::uint32_t calls, const Machine::Ended& ended);
  void stop(Why why);
  Diagnostic explain() const;

  Decoded decoded_;
  double timeout_s_;
  bool between_classes_ = false;  // see chunk_classes.h
  interp::Plan buffers_;          // what check_call() has to know of the program
  cpu::Arena counters_;
  bool counting_ = false;  // the counters are those of complete calls
  std::vector<cpu::Arena> scratch_;
  std::size_t stride_ = 0;
  std::vector<RankBuffers> memory_;

  std::mutex mutex_;  // held by the running call
  std::atomic<bool> stop_{false};
  std::atomic<Why> why_{Why::nothing};
  cpu::Doorbell doorbell_;
  std::uint32_t spins_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<cpu::WorkerPool> pool_;  // last: its threads use all of the above
};

// Runs `calls` calls of a program on threads of this process.
inline Status run_threads(const Program& program, const interp::Call& call, std::uint32_t calls = 1) {
  GC3_ASSIGN(const std::unique_ptr<Job> job, Job::create(program));
  return job->run(call, calls);
}

}  // namespace gc3::direct
