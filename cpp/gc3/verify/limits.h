// The limits that a caller sets to a program, and those of what can be verified.
#pragma once

#include "gc3/base/findings.h"
#include "gc3/ir/program.h"
#include "gc3/verify/verify.h"

namespace gc3::verify {

// False when the program is too large for the other checks. Its structure is sound.
bool check_limits(const ir::Program& program, const Options& options, Findings& findings);

}  // namespace gc3::verify
