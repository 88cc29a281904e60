#include "gc3/runtime/cpu/kernels_float8.h"

#include "gc3/runtime/interp/small_float.h"

namespace gc3::cpu {
namespace {

using namespace interp;  // the formats

using Fold = float (*)(float, float);

namespace fold {
#define GC3_FOLD(name, result) \
  template <class T>           \
  T name(T a, T b) {           \
    return result;             \
  }
#include "gc3/model/folds.def"
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
#define GC3_REDUCE_OP(name, how, floats, integers, booleans, complexes, doc)                             \
  if constexpr (floats) {                                                                                \
    set.reduce[t][static_cast<std::size_t>(model::ReduceOp::name)] = kernel<Format, fold::how<float>>(); \
  }
#include "gc3/model/types.def"
  set.divide[t] = divide<Format>;
}

template <class Part, bool kFloat8>
void enter_if(KernelSet& set, model::DataType type) {
  if constexpr (kFloat8) enter<Part>(set, type);
}

}  // namespace

void enter_float8(KernelSet& set, model::DataType type) {
#define GC3_DATA_TYPE(id, name, bytes, kind, part) \
  if (type == model::DataType::id) enter_if<part, model::Kind::kind == model::Kind::Through && bytes == 1>(set, type);
#include "gc3/model/types.def"
}

}  // namespace gc3::cpu
