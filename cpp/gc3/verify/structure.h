// What can be judged one instruction at a time: after this, every index in the program may be followed blindly.
#pragma once

#include "gc3/ir/program.h"
#include "gc3/verify/findings.h"
#include "gc3/verify/verify.h"

namespace gc3::verify {

// False when the program is too malformed for the other checks.
bool check_structure(const ir::Program& program, const Options& options, Findings& findings);

}  // namespace gc3::verify
