// Explains the duration of a run: the chain of operations that decided its end, and the waits of the threadblocks.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gc3/sim/outcome.h"

namespace gc3::sim {

// A segment of the critical path.
struct Segment {
  Time from = 0;
  Time to = 0;
  std::uint32_t record = kNone;    // the operation it belongs to; kNone: the launch
  std::uint32_t resource = kNone;  // if the cause is a link
  Cause cause = Cause::program;
};

struct Explanation {
  std::vector<Segment> path;                // by time, without gaps, from 0 to the end of the run
  std::array<Time, kCauseCount> on_path{};  // the share of each cause in the path
  std::array<Time, kCauseCount> stalls{};   // the time that all threadblocks together waited, per cause
  Time work = 0;                            // the time they were busy, including waits for links while sending
};

Explanation explain(const Outcome& outcome);

}  // namespace gc3::sim
