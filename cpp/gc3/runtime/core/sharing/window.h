// The shared file of a job as this process maps it. The same offset is the same memory in all processes, at addresses
// of their own.
//
// The file is divided into segments, each twice as long as the one before. A process maps a segment when it first needs
// a part of it. So few mappings are enough, addresses never change, and the address space follows from the memory in
// use.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>

#include "gc3/base/result.h"
#include "gc3/runtime/core/sharing/shared_memory.h"

namespace gc3::core {

class Window {
 public:
  static constexpr std::uint32_t kSegments = 22;
  static constexpr std::uint64_t kFirst = std::uint64_t{16} << 20U;  // bytes of the first segment
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

  static constexpr std::uint64_t bytes_of(std::uint32_t segment) { return kFirst << segment; }
  static constexpr std::uint64_t start_of(std::uint32_t segment) { return bytes_of(segment) - kFirst; }
  static constexpr std::uint32_t segment_of(std::uint64_t offset) {
    return static_cast<std::uint32_t>(std::bit_width(offset / kFirst + 1)) - 1;
  }

  Window() = default;
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // The address of a part, whose segment is mapped if it is not yet. Refuses what is not a part of one segment of the
  // file. From any thread.
  Result<std::uint8_t*> map(const SharedMemory& file, Extent part);
  // The address of a part of a segment that is mapped; null: it is not.
  std::uint8_t* at(std::uint64_t offset, std::uint64_t bytes) const {
    const std::uint32_t segment = segment_of(offset);
    if (segment >= kSegments) return nullptr;
    std::uint8_t* const base = bases_[segment].load(std::memory_order_acquire);
    if (base == nullptr) return nullptr;
    const std::uint64_t from = offset - start_of(segment);
    const std::uint64_t length = lengths_[segment];
    return from <= length && bytes <= length - from ? base + from : nullptr;
  }
  // The offset of an address; kNowhere if no mapped segment has it.
  std::uint64_t offset_of(const void* address) const {
    const std::uint32_t used = used_.load(std::memory_order_acquire);
    for (std::uint32_t segment = 0; segment < used; ++segment) {
      const std::uint8_t* const base = bases_[segment].load(std::memory_order_acquire);
      const std::uint64_t from = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(base);
      if (base != nullptr && from < lengths_[segment]) return start_of(segment) + from;
    }
    return kNowhere;
  }
  // Bytes of address space in use.
  std::uint64_t mapped() const;

 private:
  std::mutex mutex_;
  // By segment. A base is set once, after the length (release).
  std::array<std::atomic<std::uint8_t*>, kSegments> bases_ = {};
  std::array<std::uint64_t, kSegments> lengths_ = {};
  std::atomic<std::uint32_t> used_ = 0;  // one more than the last mapped segment
};

}  // namespace gc3::core
