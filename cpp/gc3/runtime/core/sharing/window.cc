#include "gc3/runtime/core/sharing/window.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "gc3/base/errors/common.h"

namespace gc3::core {

Window::~Window() {
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    if (std::uint8_t* const base = bases_[s].load(std::memory_order_relaxed)) munmap(base, lengths_[s]);
  }
}

Result<std::uint8_t*> Window::map(const SharedMemory& file, Extent part) {
  if (std::uint8_t* const known = at(part.offset, part.bytes); known != nullptr && file.contains(part)) return known;
  const std::uint32_t segment = segment_of(part.offset);
  const bool exists = file.contains(part) && segment < kSegments;
  const std::uint64_t start = exists ? start_of(segment) : 0;
  const std::uint64_t length = exists ? std::min(bytes_of(segment), file.size() - start) : 0;
  if (!exists || part.bytes > length - (part.offset - start)) {
    return Diagnostic(ErrorCode::SystemRefused, "a rank has named a part of the shared memory that does not exist: " +
                                                    std::to_string(part.bytes) + " bytes at " +
                                                    std::to_string(part.offset) + " of " + std::to_string(file.size()));
  }
  const std::lock_guard lock(mutex_);
  if (bases_[segment].load(std::memory_order_relaxed) == nullptr) {
    void* const base =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), static_cast<off_t>(start));
    if (base == MAP_FAILED) return refused("mmap of " + std::to_string(length) + " bytes of shared memory");
    lengths_[segment] = length;
    bases_[segment].store(static_cast<std::uint8_t*>(base), std::memory_order_release);  // with the length
    // release: who sees the number sees the bases. Under the lock, so it only grows.
    used_.store(std::max(used_.load(std::memory_order_relaxed), segment + 1), std::memory_order_release);
  }
  return at(part.offset, part.bytes);
}

std::uint64_t Window::mapped() const {
  std::uint64_t bytes = 0;
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    if (bases_[s].load(std::memory_order_acquire) != nullptr) bytes += lengths_[s];
  }
  return bytes;
}

}  // namespace gc3::core
