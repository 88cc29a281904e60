// Why a run took as long as it did: the chain of operations that decided its end, and what threadblocks waited for.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gc3/sim/outcome.h"

namespace gc3::sim {

// A stretch of the critical path.
struct Segment {
  Time from = 0;
  Time to = 0;
  std::uint32_t record = kNone;    // the operation it belongs to; kNone: the launch
  std::uint32_t resource = kNone;  // where the cause is link
  Cause cause = Cause::program;
};

struct Explanation {
  std::vector<Segment> path;                // by time; without gaps from 0 to the end of the run
  std::array<Time, kCauseCount> on_path{};  // how much of the path each cause takes
  std::array<Time, kCauseCount> stalls{};   // what all threadblocks together waited for each cause
  Time work = 0;                            // what they were busy, waits for links while sending included
};

Explanation explain(const Outcome& outcome);

}  // namespace gc3::sim
