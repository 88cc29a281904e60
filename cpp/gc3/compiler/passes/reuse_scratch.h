// Lets a place in scratch hold other data after its last reader: less memory for more false dependencies.
#pragma once

#include <cstdint>

#include "gc3/compiler/trace.h"

namespace gc3::compiler {

// Only on ranks that would use more than `enough` places. Data that is used together stays in adjacent places. The
// chunk DAG makes the writer of a place wait for the readers of what was there. Of the free places, one that was used
// long ago is taken, so that such waits are short, unless the tightest gaps need less memory. Named scratch buffers
// become one. Programs whose threadblocks the user assigned stay as they are, because the user has ordered their
// instructions.
Trace reuse_scratch(const Trace& trace, std::uint32_t enough);

}  // namespace gc3::compiler
