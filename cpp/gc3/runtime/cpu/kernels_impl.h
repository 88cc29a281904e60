// The source of the kernels, compiled once per instruction set: the including file defines GC3_KERNEL_NAMESPACE and
// GC3_VECTOR_BYTES and is built with the flags of its set. Everything has internal linkage, because the linker could
// otherwise keep a version of a shared inline function that the machine cannot run.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "gc3/runtime/cpu/kernels.h"
#include "gc3/runtime/cpu/kernels_float8.h"
#include "gc3/runtime/interp/small_float.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed only between functions of this file

namespace gc3::cpu::GC3_KERNEL_NAMESPACE {
namespace {

#define GC3_INLINE inline __attribute__((always_inline))

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(GC3_VECTOR_BYTES)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

// Folds of vectors (or scalars) of the type they are computed in.
#define GC3_FOLD(name, result)            \
  struct name {                           \
    template <class V>                    \
    static GC3_INLINE V apply(V a, V b) { \
      return result;                      \
    }                                     \
  };
#include "gc3/model/folds.def"

// How to compute with a stored type: `Stored` is the vector in memory, `apply` works on it.
template <class T>
struct Real {
  using Element = T;
  using Stored = Vector<T>;
  template <class F>
  static GC3_INLINE Stored apply(Stored a, Stored b) {
    return F::apply(a, b);
  }
  static GC3_INLINE T divide(T x, std::uint64_t divisor) { return static_cast<T>(x / static_cast<T>(divisor)); }
};

// Sums and products of signed integers wrap, which is defined only for unsigned arithmetic.
template <class T>
struct Signed {
  using Element = T;
  using Stored = Vector<T>;
  using Wrapping = Vector<std::make_unsigned_t<T>>;
  template <class F>
  static GC3_INLINE Stored apply(Stored a, Stored b) {
    if constexpr (__is_same(F, sum) || __is_same(F, prod)) {
      return reinterpret_cast<Stored>(F::apply(reinterpret_cast<Wrapping>(a), reinterpret_cast<Wrapping>(b)));
    } else {
      return F::apply(a, b);
    }
  }
  // In 64 bits: the divisor, a number of ranks, need not fit the type.
  static GC3_INLINE T divide(T x, std::uint64_t divisor) {
    return static_cast<T>(static_cast<std::int64_t>(x) / static_cast<std::int64_t>(divisor));
  }
};
template <class T>
struct Unsigned {
  using Element = T;
  using Stored = Vector<T>;
  template <class F>
  static GC3_INLINE Stored apply(Stored a, Stored b) {
    return F::apply(a, b);
  }
  static GC3_INLINE T divide(T x, std::uint64_t divisor) { return static_cast<T>(x / divisor); }
};

template <class T>
struct Boolean {
  using Element = T;
  using Stored = Vector<T>;
  template <class F>
  static GC3_INLINE Stored apply(Stored a, Stored b) {
    const Stored x = reinterpret_cast<Stored>(a != 0) & 1;
    const Stored y = reinterpret_cast<Stored>(b != 0) & 1;
    if constexpr (__is_same(F, sum) || __is_same(F, max)) return x | y;
    if constexpr (__is_same(F, prod) || __is_same(F, min)) return x & y;
    return F::apply(x, y);
  }
};

// Elements are pairs of lanes.
template <class T>
struct Complex {
  struct Element {
    T real;
    T imaginary;
  };
  using Stored = Vector<T>;
  template <class F>
  static GC3_INLINE Stored apply(Stored a, Stored b) {
    if constexpr (__is_same(F, sum)) return a + b;
    Stored product{};
    for (std::size_t i = 0; i < sizeof(Stored) / sizeof(T); i += 2) {
      product[i] = a[i] * b[i] - a[i + 1] * b[i + 1];
      product[i + 1] = a[i] * b[i + 1] + a[i + 1] * b[i];
    }
    return product;
  }
  static GC3_INLINE Element divide(Element x, std::uint64_t divisor) {
    return {x.real / static_cast<T>(divisor), x.imaginary / static_cast<T>(divisor)};
  }
};

GC3_INLINE float float_of(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
GC3_INLINE std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// float16 without hardware conversions.
GC3_INLINE float widen_half(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000U) << 16U;
  const std::uint32_t rest = h & 0x7fffU;
  if (rest >= 0x7c00U) return float_of(sign | 0x7f800000U | (rest & 0x3ffU) << 13U | (rest > 0x7c00U ? 0x400000U : 0U));
  if (rest >= 0x400U) return float_of(sign | ((rest << 13U) + (112U << 23U)));
  const float magnitude = static_cast<float>(rest) * 0x1p-24F;  // subnormal: exact
  return float_of(sign | bits_of(magnitude));
}
GC3_INLINE std::uint16_t narrow_half(float x) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t sign = bits >> 16U & 0x8000U;
  const std::uint32_t rest = bits & 0x7fffffffU;
  if (rest > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U | (rest >> 13U & 0x3ffU));
  if (rest >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // rounds to 65536 or more
  if (rest < 0x38800000U) {
    // Subnormal: adding 0.5 leaves, in the low bits, the value in units of 2^-24, rounded to nearest even.
    return static_cast<std::uint16_t>(sign | (bits_of(float_of(rest) + 0.5F) - 0x3f000000U));
  }
  return static_cast<std::uint16_t>(sign | ((rest - (112U << 23U) + 0xfffU + (rest >> 13U & 1U)) >> 13U));
}

constexpr std::size_t kHalves = GC3_VECTOR_BYTES / 2;  // in a stored vector
constexpr std::size_t kFloats = GC3_VECTOR_BYTES / 4;  // in a computing vector
typedef std::uint16_t HalfPart __attribute__((vector_size(GC3_VECTOR_BYTES / 2)));
static_assert(kHalves == 2 * kFloats);

struct Half {
  using Element = std::uint16_t;
  static GC3_INLINE Vector<float> widen(HalfPart h) {
#if defined(__AVX512F__)
    // The masked forms: the plain ones begin with an undefined vector, which g++ 12 warns about.
    return reinterpret_cast<Vector<float>>(_mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(h)));
#elif defined(__F16C__)
    return reinterpret_cast<Vector<float>>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(h)));
#else
    Vector<float> x;
    for (std::size_t i = 0; i < kFloats; ++i) x[i] = widen_half(h[i]);
    return x;
#endif
  }
  static GC3_INLINE HalfPart narrow(Vector<float> x) {
#if defined(__AVX512F__)
    return reinterpret_cast<HalfPart>(
        _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    return reinterpret_cast<HalfPart>(_mm256_cvtps_ph(reinterpret_cast<__m256>(x), _MM_FROUND_TO_NEAREST_INT));
#else
    HalfPart h{};
    for (std::size_t i = 0; i < kFloats; ++i) h[i] = narrow_half(x[i]);
    return h;
#endif
  }
  static GC3_INLINE float widen_one(std::uint16_t h) { return widen_half(h); }
  static GC3_INLINE std::uint16_t narrow_one(float x) { return narrow_half(x); }
};

struct BHalf {
  using Element = std::uint16_t;
  static GC3_INLINE Vector<float> widen(HalfPart h) {
    return reinterpret_cast<Vector<float>>(__builtin_convertvector(h, Vector<std::uint32_t>) << 16U);
  }
  static GC3_INLINE HalfPart narrow(Vector<float> x) {
    const Vector<std::uint32_t> bits = reinterpret_cast<Vector<std::uint32_t>>(x);
    const Vector<std::uint32_t> rounded = (bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U;
    const Vector<std::uint32_t> quiet = (bits >> 16U) | 0x40U;  // a NaN stays one
    return __builtin_convertvector((x != x) ? quiet : rounded, HalfPart);
  }
  static GC3_INLINE float widen_one(std::uint16_t h) { return float_of(static_cast<std::uint32_t>(h) << 16U); }
  static GC3_INLINE std::uint16_t narrow_one(float x) {
    const std::uint32_t bits = bits_of(x);
    if (x != x) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
    return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
  }
};

// A 16-bit type computed through float; those of 8 bits are in kernels_float8.cc.
template <class Format>
struct Through {
  using Element = std::uint16_t;
  using Stored = Vector<std::uint16_t>;
  template <class F>
  static GC3_INLINE Stored apply(Stored a, Stored b) {
    HalfPart x[2];
    HalfPart y[2];
    std::memcpy(x, &a, sizeof a);
    std::memcpy(y, &b, sizeof b);
    for (int i = 0; i < 2; ++i) x[i] = Format::narrow(F::apply(Format::widen(x[i]), Format::widen(y[i])));
    std::memcpy(&a, x, sizeof a);
    return a;
  }
  static GC3_INLINE std::uint16_t divide(std::uint16_t x, std::uint64_t divisor) {
    return Format::narrow_one(Format::widen_one(x) / static_cast<float>(divisor));
  }
};

template <class V>
GC3_INLINE V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class V>
GC3_INLINE V load_part(const void* from, std::size_t bytes) {
  V v{};
  std::memcpy(&v, from, bytes);
  return v;
}

template <class Type, class F>
void reduce(void* to, const void* a, const void* b, std::size_t bytes) {
  using V = typename Type::Stored;
  auto* out = static_cast<char*>(to);
  const auto* x = static_cast<const char*>(a);
  const auto* y = static_cast<const char*>(b);
  std::size_t i = 0;
  for (; i + sizeof(V) <= bytes; i += sizeof(V)) {
    const V v = Type::template apply<F>(load<V>(x + i), load<V>(y + i));
    std::memcpy(out + i, &v, sizeof v);
  }
  if (i < bytes) {
    const V v = Type::template apply<F>(load_part<V>(x + i, bytes - i), load_part<V>(y + i, bytes - i));
    std::memcpy(out + i, &v, bytes - i);
  }
}

template <class Type, class F>
void reduce2(void* to, void* to2, const void* a, const void* b, std::size_t bytes) {
  using V = typename Type::Stored;
  auto* out = static_cast<char*>(to);
  auto* out2 = static_cast<char*>(to2);
  const auto* x = static_cast<const char*>(a);
  const auto* y = static_cast<const char*>(b);
  std::size_t i = 0;
  for (; i + sizeof(V) <= bytes; i += sizeof(V)) {
    const V v = Type::template apply<F>(load<V>(x + i), load<V>(y + i));
    std::memcpy(out + i, &v, sizeof v);
    std::memcpy(out2 + i, &v, sizeof v);
  }
  if (i < bytes) {
    const V v = Type::template apply<F>(load_part<V>(x + i, bytes - i), load_part<V>(y + i, bytes - i));
    std::memcpy(out + i, &v, bytes - i);
    std::memcpy(out2 + i, &v, bytes - i);
  }
}

// Stores an aligned vector, bypassing the caches. The sanitizer does not see such stores.
template <class V>
GC3_INLINE void store_stream(void* to, V v) {
#if defined(__SANITIZE_THREAD__)
  std::memcpy(to, &v, sizeof v);
#elif defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), reinterpret_cast<__m512i>(v));
#elif defined(__AVX2__)
  _mm256_stream_si256(static_cast<__m256i*>(to), reinterpret_cast<__m256i>(v));
#elif defined(__SSE2__)
  _mm_stream_si128(static_cast<__m128i*>(to), reinterpret_cast<__m128i>(v));
#else
  std::memcpy(to, &v, sizeof v);
#endif
}

template <class Type, class F>
void reduce_stream(void* to, const void* a, const void* b, std::size_t bytes) {
  using V = typename Type::Stored;
  auto* out = static_cast<char*>(to);
  const auto* x = static_cast<const char*>(a);
  const auto* y = static_cast<const char*>(b);
  const std::size_t head = (sizeof(V) - reinterpret_cast<std::uintptr_t>(to) % sizeof(V)) % sizeof(V);
  // Memory that is also read is in the caches already.
  if (to == a || to == b || head % sizeof(typename Type::Element) != 0 || bytes < head) {
    return reduce<Type, F>(to, a, b, bytes);
  }
  reduce<Type, F>(to, a, b, head);
  std::size_t i = head;
  for (; i + sizeof(V) <= bytes; i += sizeof(V)) {
    store_stream(out + i, Type::template apply<F>(load<V>(x + i), load<V>(y + i)));
  }
  reduce<Type, F>(out + i, x + i, y + i, bytes - i);
}

template <class Type, class F>
Kernel kernel() {
  return {reduce<Type, F>, reduce2<Type, F>, reduce_stream<Type, F>};
}

template <class Type>
void divide(void* at, std::size_t bytes, std::uint64_t divisor) {
  using T = typename Type::Element;
  auto* place = static_cast<char*>(at);
  for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
    T x;
    std::memcpy(&x, place + i, sizeof x);
    x = Type::divide(x, divisor);
    std::memcpy(place + i, &x, sizeof x);
  }
}

using namespace interp;  // the 8-bit formats are only named here, see kernels_float8.cc

template <class Type, model::DataType kType>
void enter(KernelSet& set) {
  constexpr model::Kind kKind = model::info(kType).kind;
  const auto t = static_cast<std::size_t>(kType);
  if constexpr (kKind == model::Kind::Through && model::size_of(kType) == 1) {
    enter_float8(set, kType);
  } else {
#define GC3_REDUCE_OP(name, fold, floats, integers, booleans, complexes, doc)              \
  if constexpr (model::info(model::ReduceOp::name).takes(kKind)) {                         \
    set.reduce[t][static_cast<std::size_t>(model::ReduceOp::name)] = kernel<Type, fold>(); \
  }
#include "gc3/model/types.def"
    if constexpr (model::info(model::ReduceOp::avg).takes(kKind)) set.divide[t] = divide<Type>;
  }
}

KernelSet make(const char* name) {
  KernelSet set;
  set.name = name;
#define GC3_DATA_TYPE(id, name, bytes, kind, part) enter<kind<part>, model::DataType::id>(set);
#include "gc3/model/types.def"
  return set;
}

}  // namespace
}  // namespace gc3::cpu::GC3_KERNEL_NAMESPACE
