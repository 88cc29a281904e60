// How often a call may be repeated for timing: one limit for all engines.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/base/errors/common.h"
#include "gc3/base/result.h"

namespace gc3::interp {

inline constexpr std::uint64_t kMostIterations = std::uint64_t{1} << 24U;  // their times are stored

// The number of runs, including those to warm up.
inline Result<std::uint32_t> runs_of(std::uint32_t warmup, std::uint32_t iterations) {
  const std::uint64_t runs = std::uint64_t{warmup} + iterations;
  if (runs <= kMostIterations) return static_cast<std::uint32_t>(runs);
  return Diagnostic(ErrorCode::BadOption, std::to_string(warmup) + " + " + std::to_string(iterations) +
                                              " iterations; the most is " + std::to_string(kMostIterations));
}

}  // namespace gc3::interp
