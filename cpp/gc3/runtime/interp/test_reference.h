// Buffers for a run of a program, and a check of every element against the collective's postcondition.
#pragma once

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/mix64.h"
#include "gc3/runtime/interp/call.h"

namespace gc3::testing {

using model::DataType;
using model::ReduceOp;

// Under a sanitizer, where code is about ten times slower, long tests do less.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// All types except the 8-bit floats, which have too few values for these tests; tests/runtime/test_float8.py tests all
// pairs of their values.
inline constexpr DataType kAllTypes[] = {DataType::float16, DataType::bfloat16,  DataType::float32,   DataType::float64,
                                         DataType::int8,    DataType::uint8,     DataType::int16,     DataType::uint16,
                                         DataType::int32,   DataType::uint32,    DataType::int64,     DataType::uint64,
                                         DataType::boolean, DataType::complex64, DataType::complex128};
inline constexpr ReduceOp kAllOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                                       ReduceOp::avg, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor};
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
inline double rounded(double x, int precision, int least) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), least) - precision + 1);
  return std::nearbyint(x / unit) * unit;
}
inline std::uint16_t half_bits(double x) {
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
inline std::uint16_t bfloat_bits(double x) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(rounded(x, 8, -126))) >> 16);
}

// Stores the value as an element of the type, with an imaginary part of 0. The callers' values are small enough to be
// exact, or to be rounded once.
inline void store_element(DataType type, double value, void* at) {
  const auto put = [&](auto x) { std::memcpy(at, &x, sizeof x); };
  const auto put2 = [&](auto x) {
    put(x);
    std::memset(static_cast<std::uint8_t*>(at) + sizeof x, 0, sizeof x);
  };
  switch (type) {
    case DataType::float16:
      return put(half_bits(value));
    case DataType::bfloat16:
      return put(bfloat_bits(value));
    case DataType::float32:
      return put(static_cast<float>(value));
    case DataType::float64:
      return put(value);
    case DataType::int8:
      return put(static_cast<std::int8_t>(value));
    case DataType::uint8:
      return put(static_cast<std::uint8_t>(value));
    case DataType::boolean:
      return put(static_cast<std::uint8_t>(value != 0));
    case DataType::int16:
      return put(static_cast<std::int16_t>(value));
    case DataType::uint16:
      return put(static_cast<std::uint16_t>(value));
    case DataType::int32:
      return put(static_cast<std::int32_t>(value));
    case DataType::uint32:
      return put(static_cast<std::uint32_t>(value));
    case DataType::complex64:
      return put2(static_cast<float>(value));
    case DataType::complex128:
      return put2(value);
    case DataType::int64:
      return put(static_cast<std::int64_t>(value));
    case DataType::uint64:
      return put(static_cast<std::uint64_t>(value));
    case DataType::float8_e4m3fn:
    case DataType::float8_e5m2:
      break;  // not in kAllTypes
  }
}

// Input element `i` of a rank: small enough for all types and for all operations over 16 ranks.
inline double input_value(DataType type, ReduceOp op, std::uint32_t rank, std::size_t i) {
  const std::uint64_t random = mix64(rank * 1000003U + i);
  if (type == DataType::boolean) return static_cast<double>(random % 2);
  switch (op) {
    case ReduceOp::prod:
      return rank % 8 == random % 8 ? 3 : 1;
    case ReduceOp::min:
    case ReduceOp::max:
      return static_cast<double>(random % 101) - (is_unsigned(type) ? 0 : 50);
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return static_cast<double>(random % 128);
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premulsum:
      return static_cast<double>(random % 13) - (is_unsigned(type) ? 0 : 6);
  }
  return 0;
}

inline double combine_values(ReduceOp op, double a, double b) {
  const auto bits = [](double x) { return static_cast<std::uint64_t>(x); };
  switch (op) {
    case ReduceOp::band:
      return static_cast<double>(bits(a) & bits(b));
    case ReduceOp::bor:
      return static_cast<double>(bits(a) | bits(b));
    case ReduceOp::bxor:
      return static_cast<double>(bits(a) ^ bits(b));
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premulsum:
      return a + b;
  }
  return 0;
}

inline double average_value(DataType type, double sum, std::size_t n) {
  if (!is_float(type)) return std::trunc(sum / static_cast<double>(n));
  // 16-bit types divide in float and round once more, as documented.
  if (type == DataType::float64 || type == DataType::complex128) return sum / static_cast<double>(n);
  return static_cast<float>(sum) / static_cast<float>(n);
}

// The buffers of all ranks, with guards around them, filled by `input_value`.
class Buffers {
 public:
  Buffers(const model::Collective& collective, std::size_t count, DataType type, ReduceOp op)
      : collective_(collective), count_(count), type_(type), op_(op), elem_(model::size_of(type)) {
    for (std::uint32_t r = 0; r < collective.ranks(); ++r) {
      const std::size_t in = collective.input_blocks(r) * count * elem_;
      const std::size_t out = collective.output_blocks(r) * count * elem_;
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
      input_at.push_back(collective.input_blocks(r) == 0 ? nullptr : i);
      output_at.push_back(collective.output_blocks(r) == 0 ? nullptr : o);
    }
    fill();
  }

  void fill() {
    for (std::uint32_t r = 0; r < collective_.ranks(); ++r) {
      const std::size_t n = collective_.input_blocks(r) * count_;
      auto* at = static_cast<std::uint8_t*>(const_cast<void*>(input_at[r]));
      for (std::size_t i = 0; i < n; ++i) store_element(type_, input_value(type_, op_, r, i), at + i * elem_);
    }
  }

  interp::Call call() const { return {input_at, output_at, count_, type_, op_}; }

  // The first difference from the postcondition, if there is one; of all ranks or only of one.
  std::optional<std::string> difference(std::optional<std::uint32_t> only = std::nullopt) const {
    const std::uint32_t chunks = collective_.chunks();
    const std::size_t length = (count_ + chunks - 1) / chunks;
    for (std::uint32_t r = 0; r < collective_.ranks(); ++r) {
      if (only.has_value() && r != *only) continue;
      for (std::uint32_t c = 0; c < collective_.output_chunks(r); ++c) {
        const auto terms = collective_.expected_terms(r, c);
        if (terms.empty()) continue;
        const auto element = [&](std::uint32_t chunk, std::size_t e) {
          return chunk / chunks * count_ + chunk % chunks * length + e;
        };
        for (std::size_t e = 0; e < length && c % chunks * length + e < count_; ++e) {
          double value = 0;
          for (std::size_t t = 0; t < terms.size(); ++t) {
            const double x = input_value(type_, op_, terms[t].rank, element(terms[t].index, e));
            value = t == 0 ? x : combine_values(op_, value, x);
          }
          if (op_ == ReduceOp::avg && terms.size() > 1) value = average_value(type_, value, terms.size());
          std::uint8_t want[model::kMostElemBytes];
          store_element(type_, value, want);
          const std::size_t at = element(c, e);
          if (std::memcmp(static_cast<const std::uint8_t*>(output_at[r]) + at * elem_, want, elem_) != 0) {
            return "rank " + std::to_string(r) + " output element " + std::to_string(at) + " of type " +
                   std::string(model::name_of(type_)) + " is not " + std::to_string(value);
          }
        }
      }
    }
    return damage();
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::uint8_t kFill = 0xa5;

  // A description of forbidden changes: to memory around the buffers, or to input outside the output.
  std::optional<std::string> damage() const {
    for (std::uint32_t r = 0; r < collective_.ranks(); ++r) {
      for (const auto* buffer : {&inputs_[r], &outputs_[r]}) {
        for (std::size_t i = 0; i < kGuard; ++i) {
          if ((*buffer)[i] != kFill || (*buffer)[buffer->size() - 1 - i] != kFill) {
            return "rank " + std::to_string(r) + " wrote outside its buffers";
          }
        }
      }
      const auto* input = static_cast<const std::uint8_t*>(input_at[r]);
      const auto* output = static_cast<const std::uint8_t*>(output_at[r]);
      for (std::size_t i = 0; i < collective_.input_blocks(r) * count_; ++i) {
        const std::uint8_t* at = input + i * elem_;
        if (output <= at && at < output + collective_.output_blocks(r) * count_ * elem_) continue;
        std::uint8_t want[model::kMostElemBytes];
        store_element(type_, input_value(type_, op_, r, i), want);
        if (std::memcmp(at, want, elem_) != 0) {
          return "rank " + std::to_string(r) + " changed its input";
        }
      }
    }
    return std::nullopt;
  }

  const model::Collective& collective_;
  std::size_t count_;
  DataType type_;
  ReduceOp op_;
  std::size_t elem_;
  std::vector<std::vector<std::uint8_t>> inputs_;
  std::vector<std::vector<std::uint8_t>> outputs_;

 public:
  std::vector<const void*> input_at;
  std::vector<void*> output_at;
};

}  // namespace gc3::testing
