// Random numbers that nobody can foresee.
#pragma once

#include <cstdint>
#include <span>

#include "gc3/base/result.h"

namespace gc3 {

// Fills `words` with uniformly random bits of the system. Fails where the system gives none: there is no substitute.
Status draw_random(std::span<std::uint64_t> words);

}  // namespace gc3
