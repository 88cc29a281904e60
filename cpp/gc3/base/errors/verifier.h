// Ids: findings of the verifier. Their texts are in errors.def.
#pragma once

#include "gc3/base/error_id.h"

namespace gc3::ErrorCode {

inline constexpr ErrorId BadStructure = error_id("GC3-V001");
inline constexpr ErrorId UnmatchedTransfer = error_id("GC3-V002");
inline constexpr ErrorId SharedConnection = error_id("GC3-V003");
inline constexpr ErrorId OrderDeadlock = error_id("GC3-V004");
inline constexpr ErrorId SlotDeadlock = error_id("GC3-V005");
inline constexpr ErrorId UninitializedRead = error_id("GC3-V006");
inline constexpr ErrorId DataRace = error_id("GC3-V007");
inline constexpr ErrorId WrongResult = error_id("GC3-V008");
inline constexpr ErrorId LimitExceeded = error_id("GC3-V009");
inline constexpr ErrorId InputOverwritten = error_id("GC3-V010");
inline constexpr ErrorId NoRandomness = error_id("GC3-V011");
inline constexpr ErrorId NoVForm = error_id("GC3-V012");
inline constexpr ErrorId BadSwitchGroup = error_id("GC3-V013");
inline constexpr ErrorId UnpairedSignals = error_id("GC3-V014");

}  // namespace gc3::ErrorCode
