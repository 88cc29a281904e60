// Ids: errors of CUDA devices. Their texts are in errors.def.
#pragma once

#include "gc3/base/error_id.h"

namespace gc3::ErrorCode {

inline constexpr ErrorId NoCudaDriver = error_id("GC3-R015");
inline constexpr ErrorId CudaFailed = error_id("GC3-R016");
inline constexpr ErrorId NoKernelCompiler = error_id("GC3-R017");
inline constexpr ErrorId NotResident = error_id("GC3-R018");
inline constexpr ErrorId BadDevice = error_id("GC3-R019");
inline constexpr ErrorId NoWindows = error_id("GC3-R020");

}  // namespace gc3::ErrorCode
