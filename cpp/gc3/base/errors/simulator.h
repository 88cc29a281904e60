// Ids: errors of the simulator. Their texts are in errors.def.
#pragma once

#include "gc3/base/error_id.h"

namespace gc3::ErrorCode {

inline constexpr ErrorId BadSimulation = error_id("GC3-S001");
inline constexpr ErrorId SimulatedDeadlock = error_id("GC3-S002");
inline constexpr ErrorId TooManyRecords = error_id("GC3-S003");
inline constexpr ErrorId BadMeasurements = error_id("GC3-S004");
inline constexpr ErrorId BadTrace = error_id("GC3-S005");

}  // namespace gc3::ErrorCode
