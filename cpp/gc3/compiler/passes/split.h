// Instances and parallelize: cuts operations into parallel parts on smaller chunks (002 section 5.1, 000 section
// 5.3.2).
#pragma once

#include <cstdint>

#include "gc3/base/result.h"
#include "gc3/compiler/trace.h"

namespace gc3::compiler {

inline constexpr std::uint32_t kMaxChannels = 1U << 16U;  // of a program; channels.cc enforces it
inline constexpr std::uint64_t kMaxOps = 1U << 24U;       // of a trace once it is cut

// Cuts every chunk into as many parts as the factors need (their least common multiple). An operation with factor f on
// c chunks becomes f operations, each on one f-th of its data, in lanes 0 .. f-1. Dependencies are computed afterwards,
// on the smaller chunks, so a part depends only on parts with the same chunks.
Result<Trace> split(const Trace& trace, std::uint32_t instances);

}  // namespace gc3::compiler
