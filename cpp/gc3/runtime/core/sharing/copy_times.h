// The times of the ways to copy a message, by size.
#pragma once

#include <array>
#include <cstdint>

namespace gc3::core {

inline constexpr std::array<std::uint64_t, 5> kCopySizes = {8 << 10, 32 << 10, 128 << 10, 512 << 10, 1024 << 10};

// Nanoseconds for a message of a size: to write it into shared memory, to read it there on the next rank, and to read
// it on the next rank directly from its sender's memory.
struct CopyTime {
  std::uint32_t put = 0;
  std::uint32_t take = 0;
  std::uint32_t read = 0;

  bool operator==(const CopyTime&) const = default;
};
using CopyTimes = std::array<CopyTime, kCopySizes.size()>;

}  // namespace gc3::core
