// Ids: errors of ranks that are processes. Their texts are in errors.def.
#pragma once

#include "gc3/base/error_id.h"

namespace gc3::ErrorCode {

inline constexpr ErrorId NoLauncher = error_id("GC3-R007");
inline constexpr ErrorId NotMet = error_id("GC3-R008");
inline constexpr ErrorId RankLost = error_id("GC3-R009");
inline constexpr ErrorId CallsDiffer = error_id("GC3-R010");
inline constexpr ErrorId CommunicatorClosed = error_id("GC3-R011");
inline constexpr ErrorId UsedAfterFork = error_id("GC3-R012");
inline constexpr ErrorId BadSecret = error_id("GC3-R021");
inline constexpr ErrorId OtherUser = error_id("GC3-R022");
inline constexpr ErrorId BadObject = error_id("GC3-R023");
inline constexpr ErrorId RankFailed = error_id("GC3-R024");
inline constexpr ErrorId CountsDiffer = error_id("GC3-R025");
inline constexpr ErrorId Truncated = error_id("GC3-R026");
inline constexpr ErrorId BetweenHosts = error_id("GC3-R027");
inline constexpr ErrorId NestedCall = error_id("GC3-R028");

}  // namespace gc3::ErrorCode
