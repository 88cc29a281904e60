// Ids: errors of files. Their texts are in errors.def.
#pragma once

#include "gc3/base/error_id.h"

namespace gc3::ErrorCode {

inline constexpr ErrorId FileUnreadable = error_id("GC3-I001");
inline constexpr ErrorId FileUnwritable = error_id("GC3-I002");
inline constexpr ErrorId NotAProgram = error_id("GC3-I003");
inline constexpr ErrorId BadVersion = error_id("GC3-I004");
inline constexpr ErrorId CorruptProgram = error_id("GC3-I005");
inline constexpr ErrorId BadText = error_id("GC3-I006");
inline constexpr ErrorId BadXml = error_id("GC3-I007");
inline constexpr ErrorId UnknownPurpose = error_id("GC3-I008");
inline constexpr ErrorId TargetLimit = error_id("GC3-I009");
inline constexpr ErrorId BadJson = error_id("GC3-I010");
inline constexpr ErrorId BadPlan = error_id("GC3-I011");

}  // namespace gc3::ErrorCode
