// The arithmetic of reductions on a device. For each type, results are the same as those of the CPU engine's kernels.
//
// An element type has its type in memory (Stored; for complex numbers that of each of the two parts), and folds two
// vectors into one. Integers wrap; min and max return a NaN if either operand is one.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/float_formats.h"
#include "gc3/runtime/cuda/device/vec.h"

namespace gc3::cuda {

// The folds of the operations; avg is a sum with a division at the end, see kernel.h.
enum class Fold : uint32_t {
#define GC3_FOLD(name, result) name,
#include "gc3/model/folds.def"
};

template <Fold kFold, class T>
GC3_HOST_DEVICE T fold(T a, T b) {
#define GC3_FOLD(name, result) \
  if constexpr (kFold == Fold::name) return static_cast<T>(result);
#include "gc3/model/folds.def"
}

struct Ordered {  // floating point
  GC3_HOST_DEVICE static constexpr bool folds(Fold fold) {
    bool found = false;
#define GC3_REDUCE_OP(name, how, floats, integers, booleans, complexes, doc) \
  found = found || (floats && fold == Fold::how);
#include "gc3/model/types.def"
    return found;
  }
  static constexpr bool kComplex = false;
};
struct Bits {  // integers and booleans
  GC3_HOST_DEVICE static constexpr bool folds(Fold) { return true; }
  static constexpr bool kComplex = false;
};
// Integers wrap, so that signed ones are added as unsigned ones.
GC3_HOST_DEVICE constexpr SwitchSum sum_of_integers(uint32_t bytes) {
  return bytes == 4 ? SwitchSum::u32 : bytes == 8 ? SwitchSum::u64 : SwitchSum::none;
}

template <class T>
struct Real : Ordered {
  static constexpr SwitchSum kSwitchSum = sizeof(T) == 4 ? SwitchSum::f32 : SwitchSum::f64;
  using Stored = T;
  template <Fold kFold>
  GC3_HOST_DEVICE static T apply(T a, T b) {
    return fold<kFold>(a, b);
  }
  GC3_HOST_DEVICE static T divide(T x, uint64_t divisor) { return x / static_cast<T>(divisor); }
};

template <class T>
struct Unsigned : Bits {
  static constexpr SwitchSum kSwitchSum = sum_of_integers(sizeof(T));
  using Stored = T;
  template <Fold kFold>
  GC3_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (sizeof(T) == 2 && kFold == Fold::prod) {  // as int, 65535 squared would overflow
      return static_cast<T>(fold<kFold>(static_cast<uint32_t>(a), static_cast<uint32_t>(b)));
    } else if constexpr (sizeof(T) == 2 && (kFold == Fold::min || kFold == Fold::max)) {
      // Compared as signed numbers, which needs fewer registers; with the sign bit flipped their order is the same.
      const auto order = [](T x) { return static_cast<int16_t>(x ^ 0x8000U); };
      return static_cast<T>(fold<kFold>(order(a), order(b)) ^ 0x8000);
    } else {
      return fold<kFold>(a, b);
    }
  }
  GC3_HOST_DEVICE static T divide(T x, uint64_t divisor) { return static_cast<T>(x / divisor); }
};

template <class T>
struct Boolean : Bits {
  static constexpr SwitchSum kSwitchSum = SwitchSum::none;
  using Stored = T;
  template <Fold kFold>
  GC3_HOST_DEVICE static T apply(T a, T b) {
    const auto x = static_cast<T>(a != 0);
    const auto y = static_cast<T>(b != 0);
    if constexpr (kFold == Fold::sum || kFold == Fold::max) return fold<Fold::bor>(x, y);
    if constexpr (kFold == Fold::prod || kFold == Fold::min) return fold<Fold::band>(x, y);
    return fold<kFold>(x, y);
  }
  GC3_HOST_DEVICE static T divide(T x, uint64_t) { return x; }  // never called
};

// The unsigned type of kSize bytes.
template <uint32_t kSize>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = uint8_t;
};
template <>
struct UnsignedOf<2> {
  using type = uint16_t;
};
template <>
struct UnsignedOf<4> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = uint64_t;
};

// Sums and products are computed in the unsigned type, which may wrap. Small types are computed as int, which cannot
// overflow.
template <class T>
struct Signed : Bits {
  static constexpr SwitchSum kSwitchSum = sum_of_integers(sizeof(T));
  using Stored = T;
  using Wrapping = typename UnsignedOf<sizeof(T)>::type;
  template <Fold kFold>
  GC3_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (kFold != Fold::min && kFold != Fold::max) {
      if constexpr (sizeof(T) == 2 && kFold == Fold::prod) {  // as int, 65535 squared would overflow
        return static_cast<T>(fold<kFold>(static_cast<uint32_t>(a), static_cast<uint32_t>(b)));
      } else {
        return static_cast<T>(fold<kFold>(static_cast<Wrapping>(a), static_cast<Wrapping>(b)));
      }
    } else if constexpr (sizeof(T) >= 4) {
      return fold<kFold>(a, b);
    } else {
      // Compared as unsigned numbers, which needs fewer registers; with the sign bit flipped their order is the same.
      constexpr auto kSign = static_cast<Wrapping>(Wrapping{1} << (8 * sizeof(T) - 1));
      const auto order = [](T x) { return static_cast<Wrapping>(static_cast<Wrapping>(x) ^ kSign); };
      return static_cast<T>(fold<kFold>(order(a), order(b)) ^ kSign);
    }
  }
  GC3_HOST_DEVICE static T divide(T x, uint64_t divisor) {
    return static_cast<T>(static_cast<int64_t>(x) / static_cast<int64_t>(divisor));
  }
};

// Computed through float32, see float_formats.h.
template <class Format>
struct Through : Ordered {
  static constexpr SwitchSum kSwitchSum = Format::kSwitchSum;
  using Stored = typename Format::Stored;
  template <Fold kFold>
  GC3_HOST_DEVICE static Stored apply(Stored a, Stored b) {
    return static_cast<Stored>(Format::narrow(fold<kFold>(Format::widen(a), Format::widen(b))));
  }
  GC3_HOST_DEVICE static Stored divide(Stored x, uint64_t divisor) {
    return static_cast<Stored>(Format::narrow(Format::widen(x) / static_cast<float>(divisor)));
  }
};

// Rounds the product before it is added, as on the CPU.
GC3_HOST_DEVICE float product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
GC3_HOST_DEVICE double product(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

#define GC3_REDUCE_OP(name, how, floats, integers, booleans, complexes, doc) \
  static_assert(!(complexes) || Fold::how <= Fold::prod, "Complex has sums and products only");
#include "gc3/model/types.def"

template <class T>
struct Complex {
  static constexpr SwitchSum kSwitchSum = SwitchSum::none;  // for which its kernels have no registers left
  using Stored = T;
  GC3_HOST_DEVICE static constexpr bool folds(Fold fold) { return fold <= Fold::prod; }
  static constexpr bool kComplex = true;
  template <Fold kFold>
  GC3_HOST_DEVICE static void apply(T a[2], const T b[2]) {
    if constexpr (kFold == Fold::sum) {
      a[0] += b[0];
      a[1] += b[1];
    } else {
      const T real = product(a[0], b[0]) - product(a[1], b[1]);
      a[1] = product(a[0], b[1]) + product(a[1], b[0]);
      a[0] = real;
    }
  }
  GC3_HOST_DEVICE static T divide(T x, uint64_t divisor) { return x / static_cast<T>(divisor); }
};

// The element of each data type: float16_element, ...
#define GC3_DATA_TYPE(id, name, bytes, kind, part) using name##_element = kind<part>;
#include "gc3/model/types.def"

// Keeps the compiler from beginning work on `next` before `done` is finished. An unpacked small element takes a
// register, so this way only the elements of one word are unpacked at a time.
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
GC3_HOST_DEVICE Vec fold_halves(const Vec& a, const Vec& b) {
  Vec out;
  out.low = fold_half<Element, kFold>(a.low, b.low);
  uint64_t high = a.high;
  if constexpr (sizeof(typename Element::Stored) < 4) in_sequence(out.low, high);
  out.high = fold_half<Element, kFold>(high, b.high);
  return out;
}

template <class Element, Fold kFold>
GC3_HOST_DEVICE Vec fold_vec(const Vec& a, const Vec& b) {
  if constexpr (Element::kComplex) {
    constexpr int kParts = static_cast<int>(sizeof(Vec) / sizeof(typename Element::Stored));
    typename Element::Stored x[kParts];
    typename Element::Stored y[kParts];
    memcpy(x, &a, sizeof a);
    memcpy(y, &b, sizeof b);
    GC3_UNROLL
    for (int i = 0; i < kParts; i += 2) Element::template apply<kFold>(x + i, y + i);
    Vec folded;
    memcpy(&folded, x, sizeof folded);
    return folded;
  } else {
    return fold_halves<Element, kFold>(a, b);
  }
}

template <class Element, Fold kFold>
GC3_HOST_DEVICE Vec fold_if_any(const Vec& a, const Vec& b) {
  if constexpr (Element::folds(kFold)) return fold_vec<Element, kFold>(a, b);
  return a;
}

// The fold is the same for the whole launch, so all threads take the same branch.
template <class Element>
GC3_HOST_DEVICE Vec fold_vec(Fold fold, const Vec& a, const Vec& b) {
  switch (fold) {
#define GC3_FOLD(name, result) \
  case Fold::name:             \
    return fold_if_any<Element, Fold::name>(a, b);
#include "gc3/model/folds.def"
  }
  return a;
}

}  // namespace gc3::cuda
