// Copies of the input that adapt an algorithm to work out of place are left out where their readers can read the input.
#pragma once

#include "gc3/compiler/trace.h"

namespace gc3::compiler {

// For every such copy of an input that is never written: what would read a chunk of the copy reads the
// input, as far as it can be said in one operation, and only chunks are copied that somebody still has to find in their
// place.
Trace forward_copies(const Trace& trace);

}  // namespace gc3::compiler
