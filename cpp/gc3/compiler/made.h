// What a program makes: the inputs in each of its output chunks.
#pragma once

#include "gc3/base/result.h"
#include "gc3/compiler/trace.h"

namespace gc3::compiler {

// The custom collective of a finished trace, with the values that the trace leaves in the outputs as its postcondition.
// An output that is never written may hold any value.
Result<model::Collective> demanding_what_is_made(const Trace& trace);

}  // namespace gc3::compiler
