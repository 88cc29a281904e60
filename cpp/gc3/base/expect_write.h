// Prefetches memory that is to be written, from the cache of whoever read it last.
#pragma once

#include <cstdint>

namespace gc3 {

// A store that has to wait for its line delays all later ones, and loads that take several of them at once. That of the
// compiler would only read, unless it may suppose a processor of 2014 or later.
inline void expect_write(std::uint8_t* at, std::uint64_t bytes) {
  constexpr std::uint64_t kLine = 64;
  for (std::uint64_t offset = 0; offset < bytes; offset += kLine) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(at[offset]));  // where prefetching is not supported, it does nothing
#else
    __builtin_prefetch(at + offset, 1);
#endif
  }
}

}  // namespace gc3
