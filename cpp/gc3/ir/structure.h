// What can be judged one instruction at a time: after this, every index in the program may be followed blindly. The
// verifier and the runtime rely on the same check.
#pragma once

#include <cstdint>

#include "gc3/base/findings.h"
#include "gc3/ir/program.h"

namespace gc3::ir {

// False when the program is too malformed for other checks. `slots`: FIFO slots of a connection; 0: as the program
// says.
bool check_structure(const Program& program, std::uint32_t slots, Findings& findings);

}  // namespace gc3::ir
