#include "gc3/runtime/core/sharing/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

namespace gc3::core {
namespace {

// A stack's word: the page of its first part (0: none, because the first page of the file is never freed), and above it
// a number that grows with each push. A process that was slow to pop finds another number, even if the page is the
// same again.
constexpr unsigned kPageBits = 40;
constexpr std::uint64_t kPageMask = (std::uint64_t{1} << kPageBits) - 1;

struct Size {
  std::size_t index = 0;
  std::uint64_t pages = 0;
};

Size size_of(std::uint64_t bytes) {
  constexpr std::uint64_t kExact = 4;  // pages up to which each number is a size of its own
  const std::uint64_t pages = std::max<std::uint64_t>(bytes / kPage + (bytes % kPage != 0 ? 1 : 0), 1);
  if (pages <= kExact) return {pages - 1, pages};
  const auto bits = static_cast<unsigned>(std::bit_width(pages - 1));
  const std::uint64_t half = std::uint64_t{1} << (bits - 1);
  const std::uint64_t step = half / kExact;
  const std::uint64_t quarters = (pages - half + step - 1) / step;
  return {kExact * (bits - 2) + quarters - 1, half + quarters * step};
}

}  // namespace

std::uint64_t Heap::room_of(std::uint64_t bytes) { return size_of(bytes).pages * kPage; }

std::optional<std::uint64_t> Heap::pop(Window& window, const SharedMemory& file, std::size_t size_class) {
  const std::atomic_ref first(words_->freed[size_class]);
  std::uint64_t head = first.load(std::memory_order_acquire);  // with the link in the part, and its zeros
  while ((head & kPageMask) != 0) {
    const std::uint64_t offset = (head & kPageMask) * kPage;
    const Result<std::uint8_t*> at = window.map(file, {offset, kPage});
    if (!at.ok()) return {};
    // If another process has popped the part meanwhile, this is not a link, but then the exchange fails.
    const std::atomic_ref link(*reinterpret_cast<std::uint64_t*>(at.value()));
    const std::uint64_t next = (head & ~kPageMask) | (link.load(std::memory_order_relaxed) & kPageMask);
    if (first.compare_exchange_weak(head, next, std::memory_order_acquire)) {
      link.store(0, std::memory_order_relaxed);
      return offset;
    }
  }
  return {};
}

std::optional<Extent> Heap::take(Window& window, const SharedMemory& file, std::uint64_t bytes) {
  if (bytes > file.size()) return {};
  const std::uint64_t rounded = std::max(bytes / kPage + (bytes % kPage != 0 ? 1 : 0), std::uint64_t{1}) * kPage;
  const Size size = size_of(bytes);
  if (const auto freed = pop(window, file, size.index)) return Extent{*freed, rounded};
  const std::uint64_t room = size.pages * kPage;
  // The first segment with room, so that small parts lie in segments that are mapped anyway.
  for (std::uint32_t s = 0; s < Window::kSegments; ++s) {
    const std::uint64_t length = Window::bytes_of(s);
    const std::atomic_ref used(words_->used[s]);
    std::uint64_t from = used.load(std::memory_order_relaxed);
    while (from <= length && room <= length - from) {
      const Extent part{Window::start_of(s) + from, rounded};
      if (!window.map(file, part).ok()) return {};
      // relaxed: the memory is handed to other processes by words of its own.
      if (used.compare_exchange_weak(from, from + room, std::memory_order_relaxed)) return part;
    }
  }
  return {};
}

void Heap::give(std::uint8_t* at, Extent part) {
  const Size size = size_of(part.bytes);
  std::memset(at, 0, kPage);
  const std::uint64_t rest = part.bytes - kPage;
  // The system keeps locked memory (mlockall) until the job ends.
  if (rest != 0 && madvise(at + kPage, rest, MADV_REMOVE) != 0) std::memset(at + kPage, 0, rest);
  const std::atomic_ref first(words_->freed[size.index]);
  const std::atomic_ref link(*reinterpret_cast<std::uint64_t*>(at));
  std::uint64_t head = first.load(std::memory_order_relaxed);
  std::uint64_t own = 0;
  do {
    link.store(head & kPageMask, std::memory_order_relaxed);
    own = ((head & ~kPageMask) + (kPageMask + 1)) | part.offset / kPage;
    // release: who pops the part sees the link and the zeros.
  } while (!first.compare_exchange_weak(head, own, std::memory_order_release, std::memory_order_relaxed));
}

}  // namespace gc3::core
