// memcpy for data of the caller, which may be empty, and may lie anywhere.
//
// The C library, the system and the compiler move 2 KiB and more by `rep movs` on processors that have it fast. AMD's
// Zen 3 and 4 need 15 to 25 times as long for that where both lie in the caches, and the target lies a little behind
// the source modulo a page (glibc bug 30994): 1 to 31 bytes on an EPYC of Zen 3, up to 63 on others. So lie two arrays
// of malloc, one after the other, whose lengths are powers of two, and a large one of malloc behind whole pages.
// Whether this processor does, and how far, is measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gc3 {

// How many bytes the target lies behind the source where this processor takes several times as long: from 1 to so many;
// 0: nowhere. Measured at the first call, for some microseconds.
std::size_t slow_behind();

// Whether a copy by the C library or the system would be slow for that reason.
inline bool lags(const void* to, const void* from) {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uintptr_t kLine = 64;
  const std::uintptr_t behind = (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kPage;
  return behind - 1 < kLine - 1 && behind <= slow_behind();
}

// By vectors.
void copy_lagging(void* to, const void* from, std::size_t bytes);

inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kLeast = 2048;
  constexpr std::size_t kMost = std::size_t{1} << 20U;  // the caches of one core do not hold more
  if (bytes >= kLeast && bytes <= kMost && lags(to, from)) {
    copy_lagging(to, from, bytes);
  } else if (bytes != 0) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace gc3
