#include "gc3/runtime/interp/checked_bytes.h"

#include <limits>

#include "gc3/base/errors/common.h"

namespace gc3::interp {

Result<std::size_t> checked_bytes(std::uint64_t a, std::uint64_t b, const std::string& purpose) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > std::numeric_limits<std::size_t>::max() / 2) {
    return Diagnostic(ErrorCode::OutOfMemory, std::to_string(a) + " x " + std::to_string(b) + " bytes for " + purpose);
  }
  return static_cast<std::size_t>(product);
}

}  // namespace gc3::interp
