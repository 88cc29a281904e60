// Ids: errors of the compiler. Their texts are in errors.def.
#pragma once

#include "gc3/base/error_id.h"

namespace gc3::ErrorCode {

inline constexpr ErrorId TooManyThreadblocks = error_id("GC3-C001");

}  // namespace gc3::ErrorCode
