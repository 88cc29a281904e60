// Whether the messages of a program must order memory.
//
// Two threadblocks of a rank that use the same memory are ordered by semaphores, or by a chain of messages through
// other ranks. Simple orders memory with every message. The lines of LL and LL128 have their own flags and need no
// order for their data, so the fences are left out if no such chain is needed.
#pragma once

#include "gc3/runtime/interp/plan.h"

namespace gc3::cuda {

// May be wrong only with true.
bool messages_order_memory(const interp::Plan& plan);

}  // namespace gc3::cuda
