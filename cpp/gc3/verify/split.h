// Rewrites a program so that each message carries one chunk.
#pragma once

#include "gc3/base/result.h"
#include "gc3/ir/program.h"

namespace gc3::verify {

// Whether any message carries more than one chunk.
bool has_long_messages(const ir::Program& program);

// The same program, in which every step that sends or receives n chunks is n steps of one chunk. Fails if there are
// then more steps than can be verified. For structurally sound programs only.
Result<ir::Program> split_messages(const ir::Program& program);

}  // namespace gc3::verify
