// What avg divides by: how many inputs are added into each output chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/runtime/interp/plan.h"

namespace gc3::interp {

// By rank and output chunk, from the postcondition; 1 for chunks that only move, as an all-gather's.
std::vector<std::vector<std::uint64_t>> divisors(const Plan& plan);

}  // namespace gc3::interp
