// Unpredictable random numbers.
#pragma once

#include <cstdint>
#include <span>

#include "gc3/base/result.h"

namespace gc3 {

// Fills `words` with uniformly random bits from the system. Fails where the system gives none: there is no fallback.
Status draw_random(std::span<std::uint64_t> words);

}  // namespace gc3
