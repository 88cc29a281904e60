// Ids: errors in algorithms. Their texts are in errors.def.
#pragma once

#include "gc3/base/error_id.h"

namespace gc3::ErrorCode {

inline constexpr ErrorId StaleReference = error_id("GC3-L001");
inline constexpr ErrorId UninitializedChunk = error_id("GC3-L002");
inline constexpr ErrorId BadCount = error_id("GC3-L003");
inline constexpr ErrorId UnequalCounts = error_id("GC3-L004");
inline constexpr ErrorId IndexOutOfRange = error_id("GC3-L005");
inline constexpr ErrorId UnknownBuffer = error_id("GC3-L006");
inline constexpr ErrorId BadProtocol = error_id("GC3-L008");
inline constexpr ErrorId NoSuchPlace = error_id("GC3-L009");
inline constexpr ErrorId InputReadOnly = error_id("GC3-L010");
inline constexpr ErrorId OverlappingReduce = error_id("GC3-L011");
inline constexpr ErrorId BadChannel = error_id("GC3-L012");
inline constexpr ErrorId BadParallelize = error_id("GC3-L013");
inline constexpr ErrorId NoProgram = error_id("GC3-L014");
inline constexpr ErrorId PostconditionUnmet = error_id("GC3-L015");
inline constexpr ErrorId BadThreadblock = error_id("GC3-L016");
inline constexpr ErrorId WrongProgram = error_id("GC3-L018");
inline constexpr ErrorId AlgorithmRaised = error_id("GC3-L019");
inline constexpr ErrorId BadOperands = error_id("GC3-L020");

}  // namespace gc3::ErrorCode
