// Ids: errors of all layers. Their texts are in errors.def.
#pragma once

#include "gc3/base/error_id.h"

namespace gc3::ErrorCode {

inline constexpr ErrorId RankOutOfRange = error_id("GC3-L007");
inline constexpr ErrorId BadArgument = error_id("GC3-L017");
inline constexpr ErrorId ProgramTooLarge = error_id("GC3-C002");
inline constexpr ErrorId NotWithCompute = error_id("GC3-C004");
inline constexpr ErrorId BadBuffer = error_id("GC3-R001");
inline constexpr ErrorId BadOption = error_id("GC3-R002");
inline constexpr ErrorId Timeout = error_id("GC3-R003");
inline constexpr ErrorId Aborted = error_id("GC3-R004");
inline constexpr ErrorId OutOfMemory = error_id("GC3-R006");
inline constexpr ErrorId SystemRefused = error_id("GC3-R013");
inline constexpr ErrorId Internal = error_id("GC3-X001");

}  // namespace gc3::ErrorCode
