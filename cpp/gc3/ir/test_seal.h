// Recomputes the header fields of an image that depend on the rest, so that damage reaches the checks behind them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gc3/base/mix64.h"

namespace gc3::ir::testing {

inline constexpr std::size_t kChecksumAt = 16;
inline constexpr std::size_t kSizeAt = 24;
inline constexpr std::size_t kHeaderBytes = 96;

// A second, independent implementation of the format's checksum.
inline std::uint64_t format_checksum(const std::vector<std::byte>& bytes) {
  std::uint64_t state = 0x9e3779b97f4a7c15U ^ (bytes.size() - kSizeAt);
  for (std::size_t at = kSizeAt; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    state ^= word;
    state = ((state << 29U) | (state >> 35U)) * 0xbf58476d1ce4e5b9U;
  }
  return mix64(state);
}

inline std::vector<std::byte> sealed(std::vector<std::byte> bytes) {
  if (bytes.size() >= kHeaderBytes) {
    const std::uint64_t size = bytes.size();
    std::memcpy(bytes.data() + kSizeAt, &size, sizeof(size));
    const std::uint64_t checksum = format_checksum(bytes);
    std::memcpy(bytes.data() + kChecksumAt, &checksum, sizeof(checksum));
  }
  return bytes;
}

}  // namespace gc3::ir::testing
