// Results that an algorithm adapted to work out of place makes in a copy of the input are made in the output instead.
#pragma once

#include "gc3/compiler/trace.h"

namespace gc3::compiler {

// Where a rank's result is copied to the output at the end, and every operation on the copied chunks is on those alone,
// they become chunks of the output from the beginning, and the last copy goes.
Trace place_results(const Trace& trace);

}  // namespace gc3::compiler
