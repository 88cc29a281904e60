// The interpreter's Block on a CPU: one thread, waits that look once, memory through std::atomic_ref.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "gc3/runtime/cpu/kernels.h"
#include "gc3/runtime/interp/layout.h"

namespace gc3::cpu {

class CpuBlock {
 public:
  static constexpr std::uint64_t kSimplePiece = 0;
  // 16 lines of LL128 or 240 of LL: stays in the L1 cache between unpacking, reducing and packing.
  static constexpr std::uint64_t kLLPiece = 1920;
  static constexpr std::uint64_t kLL128Piece = 1920;
  template <class Protocol>
  static constexpr std::size_t stage_bytes() {
    return Protocol::kLineData == 1 ? 1 : 1920;
  }

  explicit CpuBlock(Kernel kernel) : kernel_(kernel) {}

  static std::uint64_t thread() { return 0; }
  static std::uint64_t threads() { return 1; }
  static void sync() {}

  static std::uint64_t await(const interp::Counter* counter, std::uint64_t) {
    return std::atomic_ref(const_cast<std::uint64_t&>(counter->value)).load(std::memory_order_acquire);
  }
  static void post(interp::Counter* counter, std::uint64_t value) {
    std::atomic_ref(counter->value).store(value, std::memory_order_release);
  }

  // Data and flag share a word, so the message itself needs no order. Acquire and release are for the rest: what a rank
  // did before a message may have to happen before what another rank does after it (the verifier counts on that).
  static std::uint64_t load_word(const std::uint64_t* word) {
    return std::atomic_ref(const_cast<std::uint64_t&>(*word)).load(std::memory_order_acquire);
  }
  static void store_word(std::uint64_t* word, std::uint64_t value) {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  static bool await_line(const std::uint64_t* line, std::uint64_t flag, std::uint64_t* low, std::uint64_t* high) {
    *low = load_word(line);
    *high = load_word(line + 1);
    return *low >> 32U == flag && *high >> 32U == flag;
  }

  static bool await_flag(const std::uint64_t* flag, std::uint64_t value) {
    return std::atomic_ref(const_cast<std::uint64_t&>(*flag)).load(std::memory_order_acquire) == value;
  }
  static void store_flag(std::uint64_t* flag, std::uint64_t value) {
    std::atomic_ref(*flag).store(value, std::memory_order_release);
  }

  static std::uint64_t get_word(const std::uint8_t* from) {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
  }
  static void put_word(std::uint8_t* to, std::uint64_t word) { std::memcpy(to, &word, sizeof word); }

  // Of an empty piece there may be no buffer, and memcpy may not be called with a null pointer.
  static void copy(std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  static void move(std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes) {
    if (bytes != 0) std::memmove(to, from, bytes);
  }
  static void zero(std::uint8_t* to, std::uint64_t bytes) {
    if (bytes != 0) std::memset(to, 0, bytes);
  }
  // In parts that stay in the L1 cache, so that the second copy does not read memory again.
  static void copy2(std::uint8_t* to, std::uint8_t* to2, const std::uint8_t* from, std::uint64_t bytes) {
    constexpr std::uint64_t kPart = 8192;
    for (std::uint64_t at = 0; at < bytes; at += kPart) {
      const std::uint64_t part = bytes - at < kPart ? bytes - at : kPart;
      std::memcpy(to + at, from + at, part);
      std::memcpy(to2 + at, from + at, part);
    }
  }
  void reduce(std::uint8_t* to, const std::uint8_t* a, const std::uint8_t* b, std::uint64_t bytes) const {
    kernel_.reduce(to, a, b, bytes);
  }
  void reduce2(std::uint8_t* to, std::uint8_t* to2, const std::uint8_t* a, const std::uint8_t* b,
               std::uint64_t bytes) const {
    kernel_.reduce2(to, to2, a, b, bytes);
  }

 private:
  Kernel kernel_;
};

}  // namespace gc3::cpu
