// Records the steps of the threadblocks of a run with their times, for timelines and for explaining the duration of a
// run.
//
// Recording depends on the Block that the interpreter is compiled for: RecordingBlock has the hooks, CpuBlock does not.
// So a run without recording executes the same instructions as if there were no recorder.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gc3/model/types.h"
#include "gc3/runtime/cpu/advance.h"
#include "gc3/runtime/cpu/lending.h"
#include "gc3/runtime/cpu/network_block.h"
#include "gc3/runtime/interp/engine.h"

namespace gc3::cpu {

using interp::Recording;
using interp::StepRecord;

inline std::int64_t steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Of one worker.
class Recorder {
 public:
  // Keeps the first `most` steps; allocates the memory now.
  Recorder(std::span<const interp::Task> tasks, std::uint32_t worker, std::size_t most);

  // All threadblocks are at their first step.
  void begin(std::int64_t now);
  const std::vector<StepRecord>& steps() const { return steps_; }
  std::uint64_t dropped() const { return dropped_; }

  // The hooks of the interpreter: a threadblock's turn begins, it has to wait (having moved a part or not), a step
  // ends.
  void turn() { now_ = steady_now(); }
  void wait(const interp::Task& task, bool moved) {
    State& state = state_of(task);
    if (moved && state.start == 0) state.start = now_;
    if (state.start == 0) {
      state.waiting = task.waiting;
    } else {
      state.paused = 1;
    }
  }
  template <class R>
  void done(const R& run, const interp::Task& task) {
    State& state = state_of(task);
    const std::int64_t end = steady_now();
    if (steps_.size() == steps_.capacity()) {
      ++dropped_;
    } else {
      const std::uint64_t bytes = bytes_of(message_of(run, task.tile, task.steps[task.step]));
      steps_.push_back({state.ready, state.start == 0 ? now_ : state.start, end, bytes, task.rank, task.tb, task.step,
                        static_cast<std::uint32_t>(task.tile), worker_, state.waiting, state.paused, 0});
    }
    state = {end, 0, interp::Waiting::nothing, 0};
    now_ = end;
  }

 private:
  // The current step of a threadblock.
  struct State {
    std::int64_t ready = 0;
    std::int64_t start = 0;  // 0: no data has moved
    interp::Waiting waiting = interp::Waiting::nothing;
    std::uint8_t paused = 0;
  };
  State& state_of(const interp::Task& task) { return states_[static_cast<std::size_t>(&task - first_)]; }

  const interp::Task* first_;
  std::vector<State> states_;
  std::vector<StepRecord> steps_;
  std::int64_t now_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint32_t worker_;
};

template <class Base>
class RecordingBlock : public Base {
 public:
  template <class... Arguments>
  explicit RecordingBlock(Recorder& recorder, Arguments&&... arguments)
      : Base(std::forward<Arguments>(arguments)...), recorder_(recorder) {}
  Recorder& recorder() { return recorder_; }

 private:
  Recorder& recorder_;
};

// interp::advance for a block that is a RecordingBlock<Base>, under the type of one that may not be. Compiled apart
// from what does not record, so that the compiler treats that as if this did not exist.
Advance<CpuBlock> recording_advance(model::Protocol protocol);
Advance<LendingBlock> recording_advance_lending(model::Protocol protocol);
Advance<NetworkBlock> recording_advance_network();

}  // namespace gc3::cpu
