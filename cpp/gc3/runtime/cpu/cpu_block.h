// The interpreter's Block on a CPU: one thread, waits that check once, memory accesses through std::atomic_ref.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "gc3/base/copy_bytes.h"
#include "gc3/base/expect_write.h"
#include "gc3/runtime/cpu/computing.h"
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

  explicit CpuBlock(Kernel kernel, Computing* computing = nullptr) : kernel_(kernel), computing_(computing) {}

  void computes_with(Computing& computing) { computing_ = &computing; }
  // Of a program that computes, whose runs have a table of operands.
  bool compute(const interp::VRun& run, const interp::Task& task, const interp::Step& step) const {
    const interp::VStep& at = run.steps[&step - run.first_step];
    return computing_->apply({task.rank, step.src.chunk, {run.extents + at.first, at.extents}});
  }

  static std::uint64_t thread() { return 0; }
  static std::uint64_t threads() { return 1; }
  static void sync() {}

  static std::uint64_t await(const interp::Counter* counter, std::uint64_t) {
    return std::atomic_ref(const_cast<std::uint64_t&>(counter->value)).load(std::memory_order_acquire);
  }
  static void post(interp::Counter* counter, std::uint64_t value) {
    std::atomic_ref(counter->value).store(value, std::memory_order_release);
  }

  // Data and flag share a word, so the message itself needs no order. Acquire and release are for other memory: a
  // rank's accesses before a message may have to precede another rank's accesses after it (the verifier relies on
  // that).
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

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
  // Accesses a line with one access of 16 bytes, which processors with AVX guarantee to be atomic if aligned. Others
  // keep at least its 8-byte halves atomic, which is sufficient. The clobbers stop the compiler, and the processor's
  // own memory order stops the machine, from moving surrounding accesses: they acquire and release.
  static bool load_lines(std::uint8_t* to, const std::uint64_t* line, std::uint64_t lines, std::uint64_t flag) {
    const __m128i want = _mm_set1_epi32(static_cast<int>(flag));
    const auto* from = reinterpret_cast<const __m128i*>(line);
    std::uint64_t i = 0;
    for (; i + 4 <= lines; i += 4) {
      const __m128i a = load_line(from + i);
      const __m128i b = load_line(from + i + 1);
      const __m128i c = load_line(from + i + 2);
      const __m128i d = load_line(from + i + 3);
      const __m128i same = _mm_and_si128(_mm_and_si128(_mm_cmpeq_epi32(a, want), _mm_cmpeq_epi32(b, want)),
                                         _mm_and_si128(_mm_cmpeq_epi32(c, want), _mm_cmpeq_epi32(d, want)));
      if (!flags_set(same)) return false;
      auto* out = reinterpret_cast<__m128i*>(to + i * 8);
      _mm_storeu_si128(out, _mm_unpacklo_epi64(data_of(a), data_of(b)));
      _mm_storeu_si128(out + 1, _mm_unpacklo_epi64(data_of(c), data_of(d)));
    }
    for (; i < lines; ++i) {
      const __m128i a = load_line(from + i);
      if (!flags_set(_mm_cmpeq_epi32(a, want))) return false;
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to + i * 8), data_of(a));
    }
    return true;
  }
  static void store_lines(std::uint64_t* line, const std::uint8_t* from, std::uint64_t lines, std::uint64_t flag) {
    const __m128i mark = _mm_set1_epi32(static_cast<int>(flag));
    auto* to = reinterpret_cast<__m128i*>(line);
    std::uint64_t i = 0;
    for (; i + 2 <= lines; i += 2) {
      const __m128i data = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 8));
      store_line(to + i, _mm_unpacklo_epi32(data, mark));
      store_line(to + i + 1, _mm_unpackhi_epi32(data, mark));
    }
    if (i < lines) {
      const __m128i data = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i * 8));
      store_line(to + i, _mm_unpacklo_epi32(data, mark));
    }
  }

  // Bypasses the caches: `to` is not read first, and no other data is displaced. settle() orders it before what
  // follows.
  static void stream(std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes) {
    constexpr std::uint64_t kLine = 64;
    const std::uint64_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
    if (bytes < head + kLine) return copy(to, from, bytes);
    copy(to, from, head);
    std::uint64_t at = head;
    for (; at + kLine <= bytes; at += kLine) {
      const auto* in = reinterpret_cast<const __m128i*>(from + at);
      auto* out = reinterpret_cast<__m128i*>(to + at);
      const __m128i a = _mm_loadu_si128(in);
      const __m128i b = _mm_loadu_si128(in + 1);
      const __m128i c = _mm_loadu_si128(in + 2);
      const __m128i d = _mm_loadu_si128(in + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    copy(to + at, from + at, bytes - at);
  }
  static void settle() { _mm_sfence(); }
#else
  static void settle() {}
#endif

  // Prefetches the slot of the next message, which is probably as long as this one, from the cache of the receiver,
  // which read it last. More than some lines would delay the next step.
  static void expect_write(std::uint8_t* at, std::uint64_t bytes) {
    constexpr std::uint64_t kMost = 8192;
    gc3::expect_write(at, bytes < kMost ? bytes : kMost);
  }

  // An empty piece may have no buffer.
  static void copy(std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes) { copy_bytes(to, from, bytes); }
  // Of pieces that may overlap.
  static void move(std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes) {
    const std::less<> before;
    if (before(from, to + bytes) && before(to, from + bytes)) {
      std::memmove(to, from, bytes);
    } else {
      copy_bytes(to, from, bytes);
    }
  }
  static void zero(std::uint8_t* to, std::uint64_t bytes) {
    if (bytes != 0) std::memset(to, 0, bytes);
  }
  // In parts that stay in the L1 cache, so that the second copy does not read memory again.
  static void copy2(std::uint8_t* to, std::uint8_t* to2, const std::uint8_t* from, std::uint64_t bytes) {
    constexpr std::uint64_t kPart = 8192;
    for (std::uint64_t at = 0; at < bytes; at += kPart) {
      const std::uint64_t part = bytes - at < kPart ? bytes - at : kPart;
      copy_bytes(to + at, from + at, part);
      copy_bytes(to2 + at, from + at, part);
    }
  }
  void reduce(std::uint8_t* to, const std::uint8_t* a, const std::uint8_t* b, std::uint64_t bytes) const {
    kernel_.reduce(to, a, b, bytes);
  }
  void reduce_stream(std::uint8_t* to, const std::uint8_t* a, const std::uint8_t* b, std::uint64_t bytes) const {
    kernel_.reduce_stream(to, a, b, bytes);
  }
  void reduce2(std::uint8_t* to, std::uint8_t* to2, const std::uint8_t* a, const std::uint8_t* b,
               std::uint64_t bytes) const {
    kernel_.reduce2(to, to2, a, b, bytes);
  }

 private:
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
  static __m128i load_line(const __m128i* at) {
    __m128i line;
    asm volatile("movdqa %1, %0" : "=x"(line) : "m"(*at) : "memory");
    return line;
  }
  static void store_line(__m128i* at, __m128i line) {
    asm volatile("movdqa %1, %0" : "=m"(*at) : "x"(line) : "memory");
  }
  // The flags are the odd words of a line.
  static bool flags_set(__m128i same) { return (_mm_movemask_ps(_mm_castsi128_ps(same)) & 0xa) == 0xa; }
  static __m128i data_of(__m128i line) { return _mm_shuffle_epi32(line, _MM_SHUFFLE(3, 1, 2, 0)); }
#endif

  Kernel kernel_;
  Computing* computing_;
};

}  // namespace gc3::cpu
