// Links that serve one slice after the other, in the order of the requests.
#pragma once

#include "gc3/sim/simulator.h"

namespace gc3::sim {

Result<Outcome> run_serial(const Simulator& simulator, const Call& call, const Options& options);

}  // namespace gc3::sim
