// A vector of 16 bytes, which a lane moves at a time.
#pragma once

#include <stdint.h>
#if !defined(__CUDACC_RTC__)
#include <string.h>
#endif

#include "gc3/runtime/interp/device.h"
#include "gc3/runtime/interp/small_float.h"

#if defined(__CUDACC__)
#define GC3_UNROLL _Pragma("unroll")
#define GC3_NO_UNROLL _Pragma("unroll 1")
#else
#define GC3_UNROLL
#define GC3_NO_UNROLL
#endif

namespace gc3::cuda {

struct alignas(16) Vec {
  uint64_t low = 0;
  uint64_t high = 0;
};

inline constexpr uint64_t kVec = sizeof(Vec);

using interp::bits_as;

// Adds `bytes` to a pointer, which may be null if the operand is not used.
template <class T>
GC3_HOST_DEVICE void advance_by(T*& pointer, uint64_t bytes) {
  pointer = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) + bytes);
}

}  // namespace gc3::cuda
