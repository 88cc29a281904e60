// Time limits of searches.
#pragma once

#include <algorithm>
#include <chrono>

namespace gc3::synth {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// So many seconds from now; any number, of which no more than some years count.
inline Deadline deadline_in(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(std::min(seconds, 1e8)));
}

}  // namespace gc3::synth
