// Programs in which only some operations give threadblocks.
#pragma once

#include "gc3/compiler/trace.h"

namespace gc3::compiler {

// Whether the user gives a threadblock anywhere.
bool is_manual(const Trace& trace);

// In a program that gives threadblocks, chooses those that its transfers leave open: the ones that already serve the
// same ranks and channel, else new ones with numbers above the user's. Other programs stay as they are.
Trace number_threadblocks(Trace trace);

}  // namespace gc3::compiler
