// The chunk positions that a program's data passes through, see runtime/interp/chunk_classes.h.
#pragma once

#include "gc3/runtime/interp/one_sided.h"

namespace gc3::direct {

// Whether data passes through a position of an input or an output that is of another class than where it comes from.
// Executes the program once, in some order, without data; RuntimeDeadlock if it cannot.
Result<bool> moves_between_classes(const Decoded& program);

}  // namespace gc3::direct
