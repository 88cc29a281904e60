#include "gc3/runtime/cpu/arena.h"

#include <sys/mman.h>

#include "gc3/base/errors/common.h"
#include "gc3/runtime/core/sharing/available_memory.h"

namespace gc3::cpu {
namespace {

Diagnostic out_of_memory(const std::string& bytes, const std::string& purpose) {
  return Diagnostic(ErrorCode::OutOfMemory, bytes + " bytes for " + purpose);
}

}  // namespace

Result<Arena> Arena::create(std::size_t bytes, const std::string& purpose) {
  Arena arena;
  if (bytes == 0) return arena;
  if (bytes > core::available_memory()) return out_of_memory(std::to_string(bytes), purpose);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return out_of_memory(std::to_string(bytes), purpose);
  arena.base_ = static_cast<std::uint8_t*>(base);
  arena.bytes_ = bytes;
  return arena;
}

void Arena::use_all() const {
  constexpr std::size_t kLeast = std::size_t{4} << 20U;  // so that at least one huge page of 2 MiB lies in it
  if (bytes_ >= kLeast) madvise(base_, bytes_, MADV_HUGEPAGE);
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

}  // namespace gc3::cpu
