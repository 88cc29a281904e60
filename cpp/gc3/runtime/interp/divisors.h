// What avg divides by: how many inputs are added into each output chunk.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gc3/runtime/interp/plan.h"

namespace gc3::interp {

// By rank and output chunk, from the postcondition; 1 for chunks that are only moved, such as those of an all-gather.
std::vector<std::vector<std::uint64_t>> divisors(const Plan& plan);

// The factor of a premulsum that averages floating-point numbers as NCCL does: it multiplies each input by 1 / ranks,
// rounded to the type, so that the sum of large numbers does not overflow. None: of other types it divides the sum.
std::optional<model::Factor> average_factor(model::DataType type, std::uint32_t ranks);

}  // namespace gc3::interp
