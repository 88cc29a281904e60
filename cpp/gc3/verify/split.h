// A program whose messages carry one chunk each.
#pragma once

#include "gc3/base/result.h"
#include "gc3/ir/program.h"

namespace gc3::verify {

// Whether any message carries more than one chunk.
bool has_long_messages(const ir::Program& program);

// The same program with every step that sends or receives n chunks as n steps of one chunk. Fails if that makes more
// steps than can be verified. For structurally sound programs only.
Result<ir::Program> split_messages(const ir::Program& program);

}  // namespace gc3::verify
