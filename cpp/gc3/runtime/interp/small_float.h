// Floating-point formats of 8 and 16 bits, by integer arithmetic: the same code on a host and on a device.
//
// Results are rounded to nearest even. A value that is too large for a format becomes infinite, or NaN if the format
// has no infinity (float8_e4m3fn), as in NumPy with ml_dtypes.
#pragma once

#include <stdint.h>
#if !defined(__CUDACC_RTC__)
#include <string.h>
#endif

#include "gc3/runtime/interp/device.h"

namespace gc3::interp {

// The same bits as another type of the same size.
template <class To, class From>
GC3_HOST_DEVICE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// A format of 1 sign bit, kExponent exponent bits and kMantissa mantissa bits.
template <int kExponent, int kMantissa, bool kInfinity>
struct SmallFloat {
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr int kSignShift = kExponent + kMantissa;
  static constexpr uint32_t kTop = 1U << (kExponent + kMantissa);  // one past the largest magnitude
  static constexpr uint32_t kInfinite = ((1U << kExponent) - 1U) << kMantissa;
  static constexpr uint32_t kNan = kInfinity ? (kInfinite | 1U << (kMantissa - 1)) : kTop - 1U;
  static constexpr uint32_t kFirstBeyond = kInfinity ? kInfinite : kTop - 1U;  // no finite magnitude from here on

  GC3_HOST_DEVICE static float widen(uint32_t stored) {
    const uint32_t sign = (stored >> kSignShift & 1U) << 31U;
    const uint32_t rest = stored & (kTop - 1U);
    if (rest >= kFirstBeyond) {
      if (kInfinity && rest == kInfinite) return bits_as<float>(sign | 0x7f800000U);
      return bits_as<float>(sign | 0x7fc00000U);
    }
    if (rest < 1U << kMantissa) {  // subnormal: a multiple of the smallest, exactly
      const float least = bits_as<float>(static_cast<uint32_t>(127 - kBias + 1 - kMantissa) << 23U);
      const float magnitude = static_cast<float>(rest) * least;
      return bits_as<float>(sign | bits_as<uint32_t>(magnitude));
    }
    return bits_as<float>(sign | ((rest << (23 - kMantissa)) + (static_cast<uint32_t>(127 - kBias) << 23U)));
  }

  GC3_HOST_DEVICE static uint32_t narrow(float x) {
    const uint32_t bits = bits_as<uint32_t>(x);
    const uint32_t sign = (bits >> 31U) << kSignShift;
    const uint32_t rest = bits & 0x7fffffffU;
    if (rest > 0x7f800000U) return sign | kNan;
    uint32_t magnitude;
    if (rest < static_cast<uint32_t>(127 - kBias + 1) << 23U) {
      // Subnormal or zero: adding a number whose last bit is worth the smallest one rounds to a multiple of it.
      const uint32_t magic = static_cast<uint32_t>(127 - kBias + 1 - kMantissa + 23) << 23U;
      magnitude = bits_as<uint32_t>(bits_as<float>(rest) + bits_as<float>(magic)) - magic;
    } else {
      constexpr uint32_t kDropped = 23 - kMantissa;
      const uint32_t odd = rest >> kDropped & 1U;
      const uint32_t rounded = rest + ((1U << (kDropped - 1U)) - 1U) + odd;
      magnitude = (rounded >> kDropped) - (static_cast<uint32_t>(127 - kBias) << kMantissa);
    }
    if (magnitude >= kFirstBeyond) magnitude = kInfinity ? kInfinite : kNan;
    return sign | magnitude;
  }
};

using Half = SmallFloat<5, 10, true>;
using BHalf = SmallFloat<8, 7, true>;
using E4M3 = SmallFloat<4, 3, false>;
using E5M2 = SmallFloat<5, 2, true>;

}  // namespace gc3::interp
