// Runs the threadblocks of one worker: advances each in turn, and waits when none can continue.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gc3/model/types.h"
#include "gc3/runtime/cpu/cpu_block.h"
#include "gc3/runtime/cpu/idle.h"
#include "gc3/runtime/cpu/recording.h"
#include "gc3/runtime/interp/interpreter.h"

namespace gc3::cpu {

// The state that the workers of a run share.
struct RunControl {
  std::atomic<bool> stop{false};
  Doorbell doorbell;
};

enum class Ended : std::uint8_t { finished, stopped, deadlocked };

class alignas(interp::kCacheLine) Runner {
 public:
  using FinishRank = std::function<void(std::uint32_t)>;

  // `tasks`: the tasks of one or more ranks. `workers`: the number of workers of the run; a single one detects
  // deadlocks.
  Runner(std::span<interp::Task> tasks, model::Protocol protocol, std::uint32_t workers, RunControl& control);

  // The next runs are of a program that computes: `runs` has a run for each rank. Null ends this.
  void compute(std::span<const interp::VRun> runs, Computing* computing) {
    v_runs_ = runs;
    computing_ = computing;
  }
  // Records the runs from now on; null ends this.
  void record(Recorder* recorder);
  std::span<const interp::Task> tasks() const { return tasks_; }

  // Sets all threadblocks to their first step.
  void reset();
  // Both run until all tasks have finished: poll as fast as possible, replay one step of a random task at a time.
  // `finish` is called when the last threadblock of a rank has finished.
  Ended poll(const interp::Run& run, Kernel kernel, const FinishRank& finish);
  Ended replay(const interp::Run& run, Kernel kernel, const FinishRank& finish, std::uint64_t seed);

  // Grows as long as any task advances. Another thread may read it.
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  Ended poll(CpuBlock& block, const interp::Run& run, const FinishRank& finish);
  Ended replay(CpuBlock& block, const interp::Run& run, const FinishRank& finish, std::uint64_t seed);
  interp::Outcome advance(CpuBlock& block, const interp::Run& run, interp::Task& task, std::uint32_t budget) const;
  // Advances each unfinished task once; returns whether any of them moved.
  bool sweep(CpuBlock& block, const interp::Run& run, const FinishRank& finish);
  void note_progress();
  void note_finished(const interp::Task& task, const FinishRank& finish);

  std::span<interp::Task> tasks_;
  model::Protocol protocol_;
  Advance<CpuBlock> advance_;
  std::span<const interp::VRun> v_runs_;
  Computing* computing_ = nullptr;
  Recorder* recorder_ = nullptr;
  RunControl& control_;
  std::uint32_t first_rank_ = 0;
  std::uint32_t spins_;
  bool alone_;
  std::vector<std::uint32_t> live_;       // indices of unfinished tasks
  std::vector<std::uint32_t> remaining_;  // unfinished threadblocks per rank
  std::atomic<std::uint64_t> progress_{0};
};

}  // namespace gc3::cpu
