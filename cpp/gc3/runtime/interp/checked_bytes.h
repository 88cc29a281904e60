// Sizes of memory that follow from a caller's numbers, which may be absurd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gc3/base/result.h"

namespace gc3::interp {

// a * b, or OutOfMemory if no machine could hold that many bytes. `purpose` completes "N bytes for ...".
Result<std::size_t> checked_bytes(std::uint64_t a, std::uint64_t b, const std::string& purpose);

}  // namespace gc3::interp
