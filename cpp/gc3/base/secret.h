// The shared secret of the ranks of a job: GC3_SECRET, or the content of the file that GC3_SECRET_FILE names.
#pragma once

#include <string>

#include "gc3/base/knobs.h"
#include "gc3/base/result.h"

namespace gc3 {

// Empty: neither variable is set. A BadSecret if one is set and empty (a launch script that failed to read the secret
// must not start an open job), if the secret is too short or too long, or if others can read or change its file.
// Messages never show any part of it.
Result<std::string> read_secret(const Environment& environment);

}  // namespace gc3
