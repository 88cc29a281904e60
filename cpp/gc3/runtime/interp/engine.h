// The interface of all engines: a plan with memory, which runs calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/result.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::interp {

// Called regularly by the thread that waits for a run; true aborts it.
using Interrupted = std::function<bool()>;

// One step of a threadblock in one tile. Times are nanoseconds of the steady clock, which all processes of a host
// share.
struct StepRecord {
  std::int64_t ready = 0;  // the threadblock had reached it
  std::int64_t start = 0;  // the attempt that moved its first part began
  std::int64_t end = 0;
  std::uint64_t bytes = 0;
  std::uint32_t rank = 0;
  std::uint32_t tb = 0;  // within the rank
  std::uint32_t step = 0;
  std::uint32_t tile = 0;
  std::uint32_t worker = 0;            // steps of one worker never overlap
  Waiting waiting = Waiting::nothing;  // the cause of its last wait before the start
  std::uint8_t paused = 0;             // and there were further waits between start and end
  std::uint16_t unused = 0;            // other code reads this layout: no padding bytes
};
static_assert(sizeof(StepRecord) == 56 && std::is_trivially_copyable_v<StepRecord>);

struct Recording {
  std::int64_t begin = 0;  // of the call
  std::int64_t end = 0;
  std::vector<StepRecord> steps;  // of each worker in the order in which they ended
  std::uint64_t dropped = 0;      // steps that were executed when there was no more room
};

// `C`: Call if the engine has all ranks, RankCall if it has one rank of several processes. Calls from several threads
// run one after the other. Buffers are in the memory of the host.
template <class C>
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual const Plan& plan() const = 0;
  // Runs the collective once. After an error the outputs are unspecified.
  virtual Status run(const C& call, const Interrupted& interrupted) = 0;
  // The seconds of each of `iterations` runs on the same buffers, after `warmup` others.
  Result<std::vector<double>> time(const C& call, std::uint32_t warmup, std::uint32_t iterations,
                                   const Interrupted& interrupted = {}) {
    GC3_CHECK(check_runs(warmup, iterations));
    return times(call, warmup, iterations, interrupted);
  }
  // Runs the collective once and records the first `most` steps of its threadblocks.
  virtual Result<Recording> record(const C&, std::size_t, const Interrupted& = {}) {
    return Diagnostic(ErrorCode::BadOption, "this engine does not record steps; the engines on the CPU do");
  }
  // Aborts running calls, which return Aborted. Can be called from any thread.
  virtual void abort() = 0;

 protected:
  // What `time` does when the number of runs has been checked.
  virtual Result<std::vector<double>> times(const C& call, std::uint32_t warmup, std::uint32_t iterations,
                                            const Interrupted& interrupted) = 0;

  static Status check_runs(std::uint32_t warmup, std::uint32_t iterations) {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 24U;  // their times are stored
    if (std::uint64_t{warmup} + iterations <= kMost) return {};
    return Diagnostic(ErrorCode::BadOption, std::to_string(warmup) + " + " + std::to_string(iterations) +
                                                " iterations; the most is " + std::to_string(kMost));
  }
};

}  // namespace gc3::interp
