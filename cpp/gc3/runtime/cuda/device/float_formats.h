// The floating-point formats that are computed through float32: float16, bfloat16 and the two of 8 bits.
//
// The 8-bit conversions are integer arithmetic on all devices, so an exhaustive test on the host is valid for devices.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/vec.h"
#include "gc3/runtime/interp/small_float.h"

namespace gc3::cuda {

// How a switch adds up elements, see CudaPlatform::load_sum.
enum class SwitchSum : uint32_t { none, f32, f64, f16, bf16, u32, u64 };

struct E4M3 : interp::E4M3 {
  static constexpr SwitchSum kSwitchSum = SwitchSum::none;
  using Stored = uint8_t;
};
struct E5M2 : interp::E5M2 {
  static constexpr SwitchSum kSwitchSum = SwitchSum::none;
  using Stored = uint8_t;
};

struct Half {
  static constexpr SwitchSum kSwitchSum = SwitchSum::f16;
  using Stored = uint16_t;
#if defined(__CUDA_ARCH__)
  GC3_HOST_DEVICE static float widen(uint32_t stored) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<uint16_t>(stored)));
    return x;
  }
  GC3_HOST_DEVICE static uint32_t narrow(float x) {
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
  }
#else
  using Format = interp::SmallFloat<5, 10, true>;
  GC3_HOST_DEVICE static float widen(uint32_t stored) { return Format::widen(stored); }
  GC3_HOST_DEVICE static uint32_t narrow(float x) { return Format::narrow(x); }
#endif
};

struct BHalf {
  static constexpr SwitchSum kSwitchSum = SwitchSum::bf16;
  using Stored = uint16_t;
  GC3_HOST_DEVICE static float widen(uint32_t stored) { return bits_as<float>(stored << 16U); }
  GC3_HOST_DEVICE static uint32_t narrow(float x) {
#if defined(__CUDA_ARCH__)
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    const uint32_t bits = bits_as<uint32_t>(x);
    if (x != x) return bits >> 16U | 0x40U;
    return (bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U;
#endif
  }
};

}  // namespace gc3::cuda
