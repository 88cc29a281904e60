// Buffers for a run of a program, and a check of every element against the collective's postcondition.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gc3/base/mix64.h"
#include "gc3/base/test_sanitized.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/small_float.h"

namespace gc3::testing {

using model::DataType;
using model::ReduceOp;

// Sanitizers do not check what computes the reference, which would take most of the time of the tests: it writes into
// memory of its own. It meets the buffers in memcpy() and memcmp() alone, which sanitizers do check.
#define GC3_UNCHECKED __attribute__((no_sanitize("address,thread,undefined")))

// All types except the 8-bit floats, which have too few values for these tests; tests/runtime/test_float8.py tests all
// pairs of their values.
inline const std::vector<DataType> kAllTypes = [] {
  std::vector<DataType> types;
  for (std::size_t i = 0; i < model::kDataTypes.size(); ++i) {
    const model::DataTypeInfo& of = model::kDataTypes[i];
    if (of.kind != model::Kind::Through || of.bytes > 1) types.push_back(static_cast<DataType>(i));
  }
  return types;
}();
inline const std::vector<ReduceOp> kAllOps = [] {  // but premulsum, which needs factors
  std::vector<ReduceOp> ops;
#define GC3_REDUCE_OP(name, ...) \
  if (ReduceOp::name != ReduceOp::premulsum) ops.push_back(ReduceOp::name);
#include "gc3/model/types.def"
  return ops;
}();
inline bool takes(ReduceOp op, DataType type) { return model::info(op).takes(model::info(type).kind); }
inline constexpr model::Protocol kAllProtocols[] = {model::Protocol::Simple, model::Protocol::LL,
                                                    model::Protocol::LL128};

inline bool is_complex(DataType t) { return model::info(t).kind == model::Kind::Complex; }
inline bool is_float(DataType t) {  // both parts of complex numbers are floats
  return model::info(t).kind == model::Kind::Through || model::info(t).kind == model::Kind::Real || is_complex(t);
}
inline bool is_unsigned(DataType t) {
  return model::info(t).kind == model::Kind::Unsigned || model::info(t).kind == model::Kind::Boolean;
}

// x rounded to a format of `precision` significant bits whose smallest normal exponent is `least`, to nearest even.
GC3_UNCHECKED inline double rounded(double x, int precision, int least) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), least) - precision + 1);
  return std::nearbyint(x / unit) * unit;
}
GC3_UNCHECKED inline std::uint16_t half_bits(double x) {
  x = rounded(x, 11, -14);
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  x = std::abs(x);
  if (std::isnan(x)) return 0x7e00;
  if (x >= 65536) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (x < std::ldexp(1.0, -14)) return static_cast<std::uint16_t>(sign | static_cast<int>(std::ldexp(x, 24)));
  const int e = std::ilogb(x);
  return static_cast<std::uint16_t>(sign | (e + 15) << 10 | static_cast<int>(std::ldexp(x, 10 - e) - 1024));
}
inline double half_value(std::uint16_t h) {
  const int e = h >> 10 & 31;
  const int m = h & 1023;
  double x = std::ldexp(m, -24);
  if (e == 31) x = m == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (e != 0 && e != 31) x = std::ldexp(1024 + m, e - 25);
  return (h & 0x8000) != 0 ? -x : x;
}
inline double bfloat_value(std::uint16_t b) { return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16); }
// bfloat16 has the exponents of float, so a value rounded to 8 bits is a float whose low half is zero.
GC3_UNCHECKED inline std::uint16_t bfloat_bits(double x) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(rounded(x, 8, -126))) >> 16);
}

// The formats of 16 bits.
struct Half {
  using Stored = std::uint16_t;
  static Stored bits(double x) { return half_bits(x); }
  static double value(Stored x) { return half_value(x); }
};
// Computed in float: the product of two is exact there, and their sum may be rounded twice, as documented.
struct BHalf {
  using Stored = std::uint16_t;
  static Stored bits(double x) { return bfloat_bits(x); }
  static float value(Stored x) { return static_cast<float>(bfloat_value(x)); }
};
// The value as an element of each kind, with an imaginary part of 0.
// clang-format off
template <class Format> GC3_UNCHECKED auto Through(double value) {
  if constexpr (requires { Format::bits(value); }) {
    return Format::bits(value);
  } else {
    return std::uint8_t{};  // not in kAllTypes
  }
}
template <class T> GC3_UNCHECKED T Real(double value) { return static_cast<T>(value); }
template <class T> GC3_UNCHECKED T Signed(double value) { return static_cast<T>(value); }
template <class T> GC3_UNCHECKED T Unsigned(double value) { return static_cast<T>(value); }
template <class T> GC3_UNCHECKED T Boolean(double value) { return static_cast<T>(value != 0); }
template <class T> GC3_UNCHECKED std::array<T, 2> Complex(double value) { return {static_cast<T>(value), 0}; }
// clang-format on

// Stores it. The callers' values are small enough to be exact, or to be rounded once.
GC3_UNCHECKED inline void store_element(DataType type, double value, void* at) {
  const auto put = [&](auto x) GC3_UNCHECKED { std::memcpy(at, &x, sizeof x); };
  using namespace interp;  // the formats of 8 bits
  switch (type) {
#define GC3_DATA_TYPE(id, name, bytes, kind, part) \
  case DataType::id:                               \
    return put(kind<part>(value));
#include "gc3/model/types.def"
  }
}

namespace folds {
#define GC3_FOLD(name, result)     \
  template <class T>               \
  GC3_UNCHECKED T name(T a, T b) { \
    return static_cast<T>(result); \
  }
#include "gc3/model/folds.def"
}  // namespace folds

// One element, with the C++ operators of the type.
template <class T>
GC3_UNCHECKED T plain(ReduceOp op, T a, T b) {
  if ((a != a || b != b) && (op == ReduceOp::min || op == ReduceOp::max)) return a != a ? a : b;
#define GC3_REDUCE_OP(name, fold, floats, ...)             \
  if constexpr (floats || std::is_integral_v<T>) {         \
    if (op == ReduceOp::name) return folds::fold<T>(a, b); \
  }
#include "gc3/model/types.def"
  return a;
}

GC3_UNCHECKED inline double combine_values(ReduceOp op, double a, double b) {
  if (model::info(op).floats) return plain(op, a, b);
  return static_cast<double>(plain(op, static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
}

GC3_UNCHECKED inline double average_value(DataType type, double sum, std::size_t n) {
  if (!is_float(type)) return std::trunc(sum / static_cast<double>(n));
  // 16-bit types divide in float and round once more, as documented.
  const std::size_t part = model::size_of(type) / (is_complex(type) ? 2 : 1);
  if (part == sizeof(double)) return sum / static_cast<double>(n);
  return static_cast<float>(sum) / static_cast<float>(n);
}

// The buffers of ranks, with guards around them, filled with values that are small enough for all types and for all
// operations over 16 ranks.
class Buffers {
 public:
  // Of all ranks, or only of one.
  Buffers(const model::Collective& collective, std::size_t count, DataType type, ReduceOp op,
          std::optional<std::uint32_t> only = std::nullopt)
      : collective_(collective),
        count_(count),
        type_(type),
        op_(op),
        lowest_(is_unsigned(type)                            ? 0
                : op == ReduceOp::min || op == ReduceOp::max ? -50
                                                             : -6),
        elem_(model::size_of(type)),
        expected_(kRun * elem_) {
    for (std::uint32_t r = 0; r < collective.ranks(); ++r) {
      const bool here = !only || *only == r;
      const std::size_t in = here ? collective.input_blocks(r) * count * elem_ : 0;
      const std::size_t out = here ? collective.output_blocks(r) * count * elem_ : 0;
      const model::Place input = collective.canonical(r, {model::Buffer::input, 0});
      const model::Place output = collective.canonical(r, {model::Buffer::output, 0});
      const std::size_t offset =
          count * elem_ * ((input.buffer != model::Buffer::input ? input.index : output.index) / collective.chunks());
      inputs_.emplace_back(in + 2 * kGuard, kFill);
      outputs_.emplace_back(out + 2 * kGuard, kFill);
      std::uint8_t* i = inputs_.back().data() + kGuard;
      std::uint8_t* o = outputs_.back().data() + kGuard;
      if (input.buffer != model::Buffer::input) i = o + offset;
      if (output.buffer != model::Buffer::output) o = i + offset;
      input_at.push_back(!here || collective.input_blocks(r) == 0 ? nullptr : i);
      output_at.push_back(!here || collective.output_blocks(r) == 0 ? nullptr : o);
    }
    fill();
  }

  void fill() {
    for (std::uint32_t r = 0; r < collective_.ranks(); ++r) {
      if (input_at[r] == nullptr) continue;
      const Terms input{{r, 0}};
      auto* at = static_cast<std::uint8_t*>(const_cast<void*>(input_at[r]));
      const std::size_t n = collective_.input_blocks(r) * count_;
      for (std::size_t i = 0; i < n; i += kRun) {
        const std::size_t run = std::min(kRun, n - i);
        expect(input, i, run);
        std::memcpy(at + i * elem_, expected_.data(), run * elem_);
      }
    }
  }

  interp::Call call() const { return {input_at, output_at, count_, type_, op_}; }

  // The first difference from the postcondition, if there is one.
  std::optional<std::string> difference() const {
    const std::uint32_t chunks = collective_.chunks();
    const std::size_t length = (count_ + chunks - 1) / chunks;
    const auto first = [&](std::uint32_t chunk) { return chunk / chunks * count_ + chunk % chunks * length; };
    for (std::uint32_t r = 0; r < collective_.ranks(); ++r) {
      if (output_at[r] == nullptr) continue;
      for (std::uint32_t c = 0; c < collective_.output_chunks(r); ++c) {
        Terms terms;
        for (const auto& term : collective_.expected_terms(r, c)) terms.emplace_back(term.rank, first(term.index));
        if (terms.empty()) continue;
        const std::size_t before = std::min(count_, c % chunks * length);
        const auto wrong = first_wrong(output_at[r], first(c), terms, std::min(length, count_ - before));
        if (wrong) {
          return "rank " + std::to_string(r) + " output element " + std::to_string(first(c) + *wrong) + " of type " +
                 std::string(model::name_of(type_)) + " is not " +
                 std::to_string(value(terms.data(), terms.size(), *wrong));
        }
      }
    }
    return damage();
  }

 private:
  // Rank and first element of each input that is combined.
  using Terms = std::vector<std::pair<std::uint32_t, std::size_t>>;

  static constexpr std::size_t kGuard = 64;
  static constexpr std::uint8_t kFill = 0xa5;
  static constexpr std::size_t kRun = 1024;  // so many elements are computed, and then compared

  GC3_UNCHECKED double input_value(std::uint32_t rank, std::size_t i) const {
    const std::uint64_t random = mix64(rank * 1000003U + i);
    if (type_ == DataType::boolean) return static_cast<double>(random % 2);
    if (op_ == ReduceOp::prod) return rank % 8 == random % 8 ? 3 : 1;
    if (op_ == ReduceOp::min || op_ == ReduceOp::max) return static_cast<double>(random % 101) + lowest_;
    if (!model::info(op_).floats) return static_cast<double>(random % 128);  // bits
    return static_cast<double>(random % 13) + lowest_;
  }
  GC3_UNCHECKED double value(const Terms::value_type* terms, std::size_t n, std::size_t i) const {
    double found = input_value(terms[0].first, terms[0].second + i);
    for (std::size_t t = 1; t < n; ++t) {
      found = combine_values(op_, found, input_value(terms[t].first, terms[t].second + i));
    }
    return op_ == ReduceOp::avg && n > 1 ? average_value(type_, found, n) : found;
  }
  // Computes elements `i` to `i + run` of the terms combined.
  GC3_UNCHECKED void expect(const Terms& terms, std::size_t i, std::size_t run) const {
    const Terms::value_type* at = terms.data();
    const std::size_t n = terms.size();
    std::uint8_t* to = expected_.data();
    for (std::size_t k = 0; k < run; ++k) store_element(type_, value(at, n, i + k), to + k * elem_);
  }
  std::optional<std::size_t> first_wrong(const void* buffer, std::size_t first, const Terms& terms,
                                         std::size_t n) const {
    const std::uint8_t* at = static_cast<const std::uint8_t*>(buffer) + first * elem_;
    for (std::size_t i = 0; i < n; i += kRun) {
      const std::size_t run = std::min(kRun, n - i);
      expect(terms, i, run);
      if (std::memcmp(at + i * elem_, expected_.data(), run * elem_) == 0) continue;
      for (std::size_t k = 0; k < run; ++k) {
        if (std::memcmp(at + (i + k) * elem_, expected_.data() + k * elem_, elem_) != 0) return i + k;
      }
    }
    return std::nullopt;
  }

  // A description of forbidden changes: to memory around the buffers, or to input outside the output.
  std::optional<std::string> damage() const {
    const std::vector<std::uint8_t> guard(kGuard, kFill);
    for (std::uint32_t r = 0; r < collective_.ranks(); ++r) {
      for (const auto* buffer : {&inputs_[r], &outputs_[r]}) {
        if (std::memcmp(buffer->data(), guard.data(), kGuard) != 0 ||
            std::memcmp(buffer->data() + buffer->size() - kGuard, guard.data(), kGuard) != 0) {
          return "rank " + std::to_string(r) + " wrote outside its buffers";
        }
      }
      if (input_at[r] == nullptr) continue;
      // The elements of the input before the output, and those after it.
      const auto at = reinterpret_cast<std::uintptr_t>(input_at[r]);
      const std::size_t n = collective_.input_blocks(r) * count_;
      const auto element = [&](std::uintptr_t x) { return x <= at ? 0 : std::min(n, (x - at) / elem_); };
      const auto output = output_at[r] == nullptr ? at : reinterpret_cast<std::uintptr_t>(output_at[r]);
      const std::size_t begin = element(output);
      const std::size_t end =
          element(output + (output_at[r] == nullptr ? 0 : collective_.output_blocks(r) * count_ * elem_));
      if (first_wrong(input_at[r], 0, {{r, 0}}, begin) || first_wrong(input_at[r], end, {{r, end}}, n - end)) {
        return "rank " + std::to_string(r) + " changed its input";
      }
    }
    return std::nullopt;
  }

  const model::Collective& collective_;
  std::size_t count_;
  DataType type_;
  ReduceOp op_;
  int lowest_;  // of the values
  std::size_t elem_;
  mutable std::vector<std::uint8_t> expected_;  // a run of elements
  std::vector<std::vector<std::uint8_t>> inputs_;
  std::vector<std::vector<std::uint8_t>> outputs_;

 public:
  std::vector<const void*> input_at;
  std::vector<void*> output_at;
};

}  // namespace gc3::testing
