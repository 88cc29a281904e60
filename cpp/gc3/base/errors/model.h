// Ids: errors of collectives, types and machines. Their texts are in errors.def.
#pragma once

#include "gc3/base/error_id.h"

namespace gc3::ErrorCode {

inline constexpr ErrorId BadCollective = error_id("GC3-M001");
inline constexpr ErrorId BadDataType = error_id("GC3-M002");
inline constexpr ErrorId BadReduceOp = error_id("GC3-M003");
inline constexpr ErrorId UnknownTopology = error_id("GC3-M004");
inline constexpr ErrorId BadTopology = error_id("GC3-M005");
inline constexpr ErrorId BadTopologyImport = error_id("GC3-M006");
inline constexpr ErrorId NoPath = error_id("GC3-M007");
inline constexpr ErrorId TooFewRanks = error_id("GC3-M008");
inline constexpr ErrorId UnknownBandwidth = error_id("GC3-M009");
inline constexpr ErrorId MissingPackage = error_id("GC3-M010");
inline constexpr ErrorId BuildFailed = error_id("GC3-M011");

}  // namespace gc3::ErrorCode
