// The limits that a caller sets for a program, and the verifier's own limits.
#pragma once

#include "gc3/base/findings.h"
#include "gc3/ir/program.h"
#include "gc3/verify/verify.h"

namespace gc3::verify {

// False if the program is too large for the other checks. Its structure must be sound.
bool check_limits(const ir::Program& program, const Options& options, Findings& findings);

}  // namespace gc3::verify
