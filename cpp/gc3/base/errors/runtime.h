// Ids: errors of runs and of the choice among programs. Their texts are in errors.def.
#pragma once

#include "gc3/base/error_id.h"

namespace gc3::ErrorCode {

inline constexpr ErrorId RuntimeDeadlock = error_id("GC3-R005");
inline constexpr ErrorId BadTable = error_id("GC3-R014");
inline constexpr ErrorId ComputeFailed = error_id("GC3-R029");

}  // namespace gc3::ErrorCode
