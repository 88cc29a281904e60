// The verifier of direct programs: proves that one implements its collective, call after call, without races, deadlocks
// or signals left over. docs/architecture.md has the rules of order and the argument.
#pragma once

#include "gc3/ir/direct/program.h"
#include "gc3/verify/verify.h"

namespace gc3::verify::direct {

// Of the options only max_diagnostics and max_threadblocks matter. The report's `slots` is 0.
Report verify(const ir::direct::Program& program, const Options& options = {});

}  // namespace gc3::verify::direct
