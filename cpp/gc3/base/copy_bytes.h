// memcpy for data of the caller, which may be empty, and may lie anywhere.
//
// The C library, the system and the compiler move 2 KiB and more by `rep movs` on processors that have it fast. AMD's
// Zen 3 and 4 need 15 to 25 times as long for that where both lie in the caches, and the target lies 1 to 63 bytes
// behind the source modulo a page (glibc bug 30994). So lie two arrays of malloc, one after the other, whose lengths
// are powers of two. Whether this processor does is measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gc3 {

// Whether the target lies so behind the source.
inline bool is_behind(std::uintptr_t to, std::uintptr_t from) {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uintptr_t kLine = 64;
  return (to - from) % kPage - 1 < kLine - 1;
}

// Whether this processor takes several times as long then. Measured at the first call, for some microseconds.
bool is_slow_behind();

// Whether a copy by the C library or the system would be slow for that reason.
inline bool lags(const void* to, const void* from) {
  return is_behind(reinterpret_cast<std::uintptr_t>(to), reinterpret_cast<std::uintptr_t>(from)) && is_slow_behind();
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
