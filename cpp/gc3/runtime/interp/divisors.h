// The divisors of avg: how many inputs are added into each output chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/runtime/interp/plan.h"

namespace gc3::interp {

// By rank and output chunk, from the postcondition; 1 for chunks that are only moved, such as those of an all-gather.
std::vector<std::vector<std::uint64_t>> divisors(const Plan& plan);

}  // namespace gc3::interp
