// Whether the messages of a program must order memory.
//
// Two threadblocks of a rank that use the same memory are ordered by semaphores, or by a chain of messages through
// other ranks. Simple orders memory with every message. The lines of LL and LL128 carry their own flags and need no
// order for what they carry, so the fences that would give it are left out where no such chain is relied upon.
#pragma once

#include "gc3/runtime/interp/plan.h"

namespace gc3::cuda {

// Errs on the side of yes.
bool messages_order_memory(const interp::Plan& plan);

}  // namespace gc3::cuda
