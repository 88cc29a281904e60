#include "gc3/runtime/cpu/kernels_float8.h"

#include "gc3/runtime/interp/small_float.h"

namespace gc3::cpu {
namespace {

using interp::E4M3;
using interp::E5M2;

// `b != b` holds for a NaN only; if `a` is the NaN both comparisons fail and `a` is kept.
float sum(float a, float b) { return a + b; }
float prod(float a, float b) { return a * b; }
float least(float a, float b) { return b < a || b != b ? b : a; }
float largest(float a, float b) { return b > a || b != b ? b : a; }

using Fold = float (*)(float, float);

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
  set.reduce[t][static_cast<std::size_t>(model::ReduceOp::sum)] = kernel<Format, sum>();
  set.reduce[t][static_cast<std::size_t>(model::ReduceOp::prod)] = kernel<Format, prod>();
  set.reduce[t][static_cast<std::size_t>(model::ReduceOp::min)] = kernel<Format, least>();
  set.reduce[t][static_cast<std::size_t>(model::ReduceOp::max)] = kernel<Format, largest>();
  set.reduce[t][static_cast<std::size_t>(model::ReduceOp::avg)] = kernel<Format, sum>();
  set.divide[t] = divide<Format>;
}

}  // namespace

void enter_float8(KernelSet& set) {
  enter<E4M3>(set, model::DataType::float8_e4m3fn);
  enter<E5M2>(set, model::DataType::float8_e5m2);
}

}  // namespace gc3::cpu
