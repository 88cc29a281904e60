// Removes copies of the input that adapt an algorithm to run out of place, where their readers can read the input.
#pragma once

#include "gc3/compiler/trace.h"

namespace gc3::compiler {

// Applies to every such copy of an input that is never written. Readers of the copy read the input instead, if one
// operation can express it. Only chunks that an operation still needs at their location are copied.
Trace forward_copies(const Trace& trace);

}  // namespace gc3::compiler
