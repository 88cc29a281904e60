// The arithmetic of reductions on a device: the same results, type by type, as the CPU engine's kernels.
//
// An element type says how it lies in memory (Stored) and how two of it are folded into one. Integers wrap; min and max
// return a NaN when either operand is one.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/float_formats.h"
#include "gc3/runtime/cuda/device/vec.h"

namespace gc3::cuda {

// avg folds as sum and divides at the end, see divide.h.
enum class Fold : uint32_t { sum, prod, min, max };

template <Fold kFold, class T>
GC3_HOST_DEVICE T fold(T a, T b) {
  if constexpr (kFold == Fold::sum) return static_cast<T>(a + b);
  if constexpr (kFold == Fold::prod) return static_cast<T>(a * b);
  // b != b holds for a NaN only; if `a` is the NaN both comparisons fail and `a` is kept.
  if constexpr (kFold == Fold::min) return (b < a || b != b) ? b : a;
  if constexpr (kFold == Fold::max) return (b > a || b != b) ? b : a;
}

template <class T>
struct Real {
  using Stored = T;
  template <Fold kFold>
  GC3_HOST_DEVICE static T apply(T a, T b) {
    return fold<kFold>(a, b);
  }
  GC3_HOST_DEVICE static T divide(T x, uint64_t divisor) { return x / static_cast<T>(divisor); }
};

// Sums and products are those of the unsigned type, which may wrap; small types are computed as int, which cannot.
template <class T, class Wrapping>
struct Signed {
  using Stored = T;
  template <Fold kFold>
  GC3_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (kFold == Fold::sum || kFold == Fold::prod) {
      return static_cast<T>(fold<kFold>(static_cast<Wrapping>(a), static_cast<Wrapping>(b)));
    } else if constexpr (sizeof(T) >= 4) {
      return fold<kFold>(a, b);
    } else {
      // Compared as unsigned numbers, which flipped signs bring into the order of the signed ones: fewer registers.
      constexpr auto kSign = static_cast<Wrapping>(Wrapping{1} << (8 * sizeof(T) - 1));
      const auto order = [](T x) { return static_cast<Wrapping>(static_cast<Wrapping>(x) ^ kSign); };
      return static_cast<T>(fold<kFold>(order(a), order(b)) ^ kSign);
    }
  }
  GC3_HOST_DEVICE static T divide(T x, uint64_t divisor) {
    return static_cast<T>(static_cast<int64_t>(x) / static_cast<int64_t>(divisor));
  }
};
template <class T>
struct Unsigned {
  using Stored = T;
  template <Fold kFold>
  GC3_HOST_DEVICE static T apply(T a, T b) {
    return fold<kFold>(a, b);
  }
  GC3_HOST_DEVICE static T divide(T x, uint64_t divisor) { return static_cast<T>(x / divisor); }
};

// Computed through float32, see float_formats.h.
template <class T, class Format>
struct Through {
  using Stored = T;
  template <Fold kFold>
  GC3_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>(Format::narrow(fold<kFold>(Format::widen(a), Format::widen(b))));
  }
  GC3_HOST_DEVICE static T divide(T x, uint64_t divisor) {
    return static_cast<T>(Format::narrow(Format::widen(x) / static_cast<float>(divisor)));
  }
};

// The element of each data type: float16_element, ...
#define GC3_DEVICE_TYPE(name, ...) using name##_element = __VA_ARGS__;
#include "gc3/runtime/cuda/device/types.def"
#undef GC3_DEVICE_TYPE

// Nothing that is made of `next` begins before `done` is. Small elements take a register each once they are unpacked:
// with this, only those of one word are.
GC3_HOST_DEVICE void in_sequence(uint64_t& done, uint64_t& next) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(done), "+l"(next));
#else
  static_cast<void>(done);
  static_cast<void>(next);
#endif
}

template <class Element, Fold kFold, class Word>
GC3_HOST_DEVICE Word fold_word(Word a, Word b) {
  using Stored = typename Element::Stored;
  constexpr int kElems = static_cast<int>(sizeof(Word) / sizeof(Stored));
  Stored x[kElems];
  Stored y[kElems];
  memcpy(x, &a, sizeof a);
  memcpy(y, &b, sizeof b);
  GC3_UNROLL
  for (int i = 0; i < kElems; ++i) x[i] = Element::template apply<kFold>(x[i], y[i]);
  memcpy(&a, x, sizeof a);
  return a;
}

template <class Element, Fold kFold>
GC3_HOST_DEVICE uint64_t fold_half(uint64_t a, uint64_t b) {
  if constexpr (sizeof(typename Element::Stored) == 1) {
    const auto low = fold_word<Element, kFold>(static_cast<uint32_t>(a), static_cast<uint32_t>(b));
    uint64_t out = low;
    in_sequence(out, a);
    return out | uint64_t{fold_word<Element, kFold>(static_cast<uint32_t>(a >> 32U), static_cast<uint32_t>(b >> 32U))}
                     << 32U;
  } else {
    return fold_word<Element, kFold>(a, b);
  }
}

template <class Element, Fold kFold>
GC3_HOST_DEVICE Vec fold_vec(const Vec& a, const Vec& b) {
  Vec out;
  out.low = fold_half<Element, kFold>(a.low, b.low);
  uint64_t high = a.high;
  if constexpr (sizeof(typename Element::Stored) < 4) in_sequence(out.low, high);
  out.high = fold_half<Element, kFold>(high, b.high);
  return out;
}

// The fold is the same for a whole launch: all threads take the same branch.
template <class Element>
GC3_HOST_DEVICE Vec fold_vec(Fold fold, const Vec& a, const Vec& b) {
  switch (fold) {
    case Fold::sum:
      return fold_vec<Element, Fold::sum>(a, b);
    case Fold::prod:
      return fold_vec<Element, Fold::prod>(a, b);
    case Fold::min:
      return fold_vec<Element, Fold::min>(a, b);
    case Fold::max:
      return fold_vec<Element, Fold::max>(a, b);
  }
  return a;
}

}  // namespace gc3::cuda
