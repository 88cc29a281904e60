#include "gc3/runtime/cpu/kernels_float8.h"

#include "gc3/runtime/interp/small_float.h"

namespace gc3::cpu {
namespace {

using interp::E4M3;
using interp::E5M2;

using Fold = float (*)(float, float);

// `b != b` holds for a NaN only; if `a` is the NaN both comparisons fail and `a` is kept.
namespace fold {
float sum(float a, float b) { return a + b; }
float prod(float a, float b) { return a * b; }
float min(float a, float b) { return b < a || b != b ? b : a; }
float max(float a, float b) { return b > a || b != b ? b : a; }
constexpr Fold band = nullptr;  // no floats have these
constexpr Fold bor = nullptr;
constexpr Fold bxor = nullptr;
}  // namespace fold

template <class Format, Fold kFold>
void reduce2(void* to, void* to2, const void* a, const void* b, std::size_t bytes) {
  auto* out = static_cast<std::uint8_t*>(to);
  auto* out2 = static_cast<std::uint8_t*>(to2);
  const auto* x = static_cast<const std::uint8_t*>(a);
  const auto* y = static_cast<const std::uint8_t*>(b);
  for (std::size_t i = 0; i < bytes; ++i) {
    const float folded = kFold(Format::widen(x[i]), Format::widen(y[i]));
    out[i] = static_cast<std::uint8_t>(Format::narrow(folded));
    out2[i] = out[i];
  }
}

template <class Format, Fold kFold>
void reduce(void* to, const void* a, const void* b, std::size_t bytes) {
  reduce2<Format, kFold>(to, to, a, b, bytes);
}

template <class Format>
void divide(void* at, std::size_t bytes, std::uint64_t divisor) {
  auto* x = static_cast<std::uint8_t*>(at);
  for (std::size_t i = 0; i < bytes; ++i) {
    x[i] = static_cast<std::uint8_t>(Format::narrow(Format::widen(x[i]) / static_cast<float>(divisor)));
  }
}

template <class Format, Fold kFold>
Kernel kernel() {
  return {reduce<Format, kFold>, reduce2<Format, kFold>, reduce<Format, kFold>};
}

template <class Format>
void enter(KernelSet& set, model::DataType type) {
  const auto t = static_cast<std::size_t>(type);
#define GC3_REDUCE_OP(name, how, floats, integers, booleans, complexes, doc)                      \
  if constexpr (floats) {                                                                         \
    set.reduce[t][static_cast<std::size_t>(model::ReduceOp::name)] = kernel<Format, fold::how>(); \
  }
#include "gc3/model/types.def"
  set.divide[t] = divide<Format>;
}

}  // namespace

void enter_float8(KernelSet& set, model::DataType type) {
  if (type == model::DataType::float8_e4m3fn) enter<E4M3>(set, type);
  if (type == model::DataType::float8_e5m2) enter<E5M2>(set, type);
}

}  // namespace gc3::cpu
