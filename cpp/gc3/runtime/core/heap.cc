#include "gc3/runtime/core/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"

namespace gc3::core {
namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t round_to_pages(std::uint64_t bytes) {
  return std::max((bytes + kPage - 1) / kPage, std::uint64_t{1}) * kPage;
}

}  // namespace

void Heap::open(const SharedMemory& memory) {
  Result<Mapping> window = memory.map({0, memory.size()});
  if (window.ok()) window_ = std::move(window).value();  // without a window, messages are copied
}

Result<std::uint8_t*> Heap::allocate(const SharedMemory& memory, std::uint64_t& end, std::uint64_t bytes) {
  const std::string purpose = "an array that all ranks can read";
  const auto no_room = [&] {
    return Diagnostic(ErrorCode::OutOfMemory, std::to_string(bytes) + " bytes for " + purpose + ": " +
                                                  "the address space of " + std::to_string(window_.size()) +
                                                  " bytes is used up");
  };
  if (bytes > window_.size()) return no_room();
  Extent extent{0, round_to_pages(bytes)};
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint64_t>& same = free_[extent.bytes];
    if (!same.empty()) {
      extent.offset = same.back();
      same.pop_back();
    }
  }
  if (extent.offset != 0) {
    GC3_CHECK(memory.reserve(extent, purpose));
  } else {
    GC3_ASSIGN(extent, memory.allocate(end, extent.bytes, purpose));
  }
  if (extent.offset + extent.bytes > window_.size()) {
    memory.discard(extent);
    return no_room();
  }
  window_.populate(extent.offset, extent.bytes);
  return window_.data() + extent.offset;
}

void Heap::free(std::uint8_t* at, std::uint64_t bytes) {
  const Extent extent{static_cast<std::uint64_t>(at - window_.data()), round_to_pages(bytes)};
  // The system keeps locked memory (mlockall) until the job ends.
  if (madvise(at, extent.bytes, MADV_REMOVE) != 0) std::memset(at, 0, extent.bytes);
  const std::lock_guard lock(mutex_);
  free_[extent.bytes].push_back(extent.offset);
}

}  // namespace gc3::core
