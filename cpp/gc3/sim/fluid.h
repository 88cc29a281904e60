// Links that all transfers use at once, each at its max-min fair rate.
//
// Slower than `run_serial` and independent of its model: an oracle for tests, and a second prediction where NICs or an
// X-Bus are contended. A message's own time on a resource counts as bytes of its transfer.
#pragma once

#include "gc3/sim/simulator.h"

namespace gc3::sim {

Result<Outcome> run_fluid(const Simulator& simulator, const Call& call, const Options& options);

}  // namespace gc3::sim
