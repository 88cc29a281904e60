// Ids: errors of the compiler. Their texts are in errors.def.
#pragma once

#include "gc3/base/error_id.h"

namespace gc3::ErrorCode {

inline constexpr ErrorId TooManyThreadblocks = error_id("GC3-C001");
inline constexpr ErrorId CopyReduces = error_id("GC3-C003");

}  // namespace gc3::ErrorCode
