// Lets an algorithm that was adapted to run out of place compute its result in the output, not in a copy of the input.
#pragma once

#include "gc3/compiler/trace.h"

namespace gc3::compiler {

// Applies where a rank's result is copied to the output at the end, and every operation on the copied chunks covers no
// other chunks. These chunks become chunks of the output from the beginning, and the final copy is removed.
Trace place_results(const Trace& trace);

}  // namespace gc3::compiler
