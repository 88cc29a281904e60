// Checks each instruction by itself. After it, every index in the program is safe to use. The verifier and the runtime
// both rely on this check.
#pragma once

#include <cstdint>

#include "gc3/base/findings.h"
#include "gc3/ir/program.h"

namespace gc3::ir {

// False if the program is too malformed for other checks. `slots`: FIFO slots of a connection; 0: the number in the
// program.
bool check_structure(const Program& program, std::uint32_t slots, Findings& findings);

}  // namespace gc3::ir
