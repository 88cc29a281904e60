#include "gc3/runtime/cpu/kernels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

#include "gc3/runtime/cpu/test_reference.h"

namespace gc3::cpu {
namespace {

using testing::BHalf;
using testing::DataType;
using testing::Half;
using testing::kAllOps;
using testing::kAllTypes;
using testing::ReduceOp;

// The reference for arrays of elements. Integers wrap, so they are computed as unsigned if that matters.
std::vector<std::uint8_t> expected(DataType type, ReduceOp op, const std::vector<std::uint8_t>& a,
                                   const std::vector<std::uint8_t>& b) {
  std::vector<std::uint8_t> result(a.size());
  const auto each = [&](auto element, auto compute) {
    using T = decltype(element);
    for (std::size_t i = 0; i + sizeof(T) <= a.size(); i += sizeof(T)) {
      T x;
      T y;
      std::memcpy(&x, a.data() + i, sizeof x);
      std::memcpy(&y, b.data() + i, sizeof y);
      const T z = compute(x, y);
      std::memcpy(result.data() + i, &z, sizeof z);
    }
  };
  const bool ordered = op == ReduceOp::min || op == ReduceOp::max;
  const auto direct = [op](auto x, auto y) { return testing::plain(op, x, y); };
  const auto Through = [&](auto format) {
    using Format = decltype(format);
    if constexpr (requires { Format::bits(0.0); }) {  // else it is not in kAllTypes
      each(typename Format::Stored{},
           [op](auto x, auto y) { return Format::bits(testing::plain(op, Format::value(x), Format::value(y))); });
    }
  };
  const auto Real = [&](auto part) { each(part, direct); };
  const auto Unsigned = Real;
  const auto Signed = [&](auto part) {
    ordered ? each(part, direct) : each(std::make_unsigned_t<decltype(part)>{}, direct);
  };
  const auto Boolean = [&](auto part) {
    each(part, [op](auto x, auto y) { return static_cast<decltype(x)>(testing::plain<int>(op, x != 0, y != 0) != 0); });
  };
  const auto Complex = [&](auto part) {
    each(std::complex(part, part), [op](auto x, auto y) { return op == ReduceOp::prod ? x * y : x + y; });
  };
  using namespace interp;  // the formats of 8 bits
  switch (type) {
#define GC3_DATA_TYPE(id, name, bytes, kind, part) \
  case DataType::id:                               \
    kind(part{});                                  \
    break;
#include "gc3/model/types.def"
  }
  return result;
}

// Any bits for integers; values of both signs and moderate size for floats.
std::vector<std::uint8_t> operand(DataType type, std::size_t elements, std::uint64_t seed) {
  const std::size_t size = model::size_of(type);
  std::vector<std::uint8_t> bytes(elements * size);
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint64_t random = mix64(seed + i);
    if (testing::is_float(type)) {
      const double value = std::ldexp(static_cast<double>(random % 4001) - 2000, static_cast<int>(random >> 60) - 9);
      testing::store_element(type, value, bytes.data() + i * size);
      if (!testing::is_complex(type)) continue;
      const double other =
          static_cast<double>(mix64(random) % 4001) - 2000;  // multiples of a power of two, so that products are exact
      const DataType part = type == DataType::complex64 ? DataType::float32 : DataType::float64;
      testing::store_element(part, other, bytes.data() + i * size + size / 2);
    } else {
      std::memcpy(bytes.data() + i * size, &random, size);
    }
  }
  return bytes;
}

const Kernel& kernel(const KernelSet& set, DataType type, ReduceOp op) {
  return set.reduce[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
}

TEST_CASE("every kernel set gives the same results as a plain loop, for every type, operation and length") {
  for (const KernelSet* set : kernel_sets()) {
    for (const DataType type : kAllTypes) {
      for (const ReduceOp op : kAllOps) {
        CHECK((kernel(*set, type, op).reduce != nullptr) == testing::takes(op, type));
        if (!testing::takes(op, type)) continue;
        for (std::size_t n = 0; n < 200; n += n < 70 ? 1 : 13) {
          CAPTURE(set->name);
          CAPTURE(model::name_of(type));
          CAPTURE(model::name_of(op));
          CAPTURE(n);
          const auto a = operand(type, n, 1);
          const auto b = operand(type, n, 77777);
          const auto want = expected(type, op, a, b);
          // An odd offset, because buffers need no alignment; and a guard byte to detect writes past the end.
          std::vector<std::uint8_t> to(a.size() + 2, 0xee);
          std::vector<std::uint8_t> to2(a.size() + 2, 0xee);
          kernel(*set, type, op).reduce2(to.data() + 1, to2.data() + 1, a.data(), b.data(), a.size());
          CHECK(std::equal(want.begin(), want.end(), to.begin() + 1));
          CHECK(to.back() == 0xee);
          CHECK(to == to2);
          for (const std::size_t offset : {std::size_t{0}, model::size_of(type), std::size_t{1}}) {
            std::vector<std::uint8_t> past(a.size() + offset + 1, 0xee);
            kernel(*set, type, op).reduce_stream(past.data() + offset, a.data(), b.data(), a.size());
            CHECK(std::equal(want.begin(), want.end(), past.begin() + static_cast<std::ptrdiff_t>(offset)));
            CHECK(past[offset + a.size()] == 0xee);
          }
          auto in_place = a;
          kernel(*set, type, op).reduce(in_place.data(), in_place.data(), b.data(), a.size());
          CHECK(in_place == want);
          in_place = b;
          kernel(*set, type, op).reduce(in_place.data(), a.data(), in_place.data(), a.size());
          CHECK(in_place == want);
        }
      }
    }
  }
}

TEST_CASE("all 65536 float16 values are converted exactly, and sums round to nearest even") {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const KernelSet* set : kernel_sets()) {
    CAPTURE(set->name);
    for (const int bits : {0x0001, 0x03ff, 0x0400, 0x3c00, 0x3c01, 0x6bff, 0x7bff, 0x8001, 0xbc00, 0xfbff}) {
      const auto other = static_cast<std::uint16_t>(bits);
      const std::vector<std::uint16_t> b(all.size(), other);
      std::vector<std::uint16_t> sum(all.size());
      kernel(*set, DataType::float16, ReduceOp::sum).reduce(sum.data(), all.data(), b.data(), 2 * all.size());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const double exact = testing::half_value(all[i]) + testing::half_value(other);
        const bool nan = std::isnan(exact);
        // The sum is exact in double and in float, so it is rounded once.
        if (nan ? !std::isnan(testing::half_value(sum[i])) : sum[i] != testing::half_bits(exact)) ++wrong;
      }
      CHECK(wrong == 0);
    }
    const std::vector<std::uint16_t> one(all.size(), 0x3c00);
    std::vector<std::uint16_t> product(all.size());
    kernel(*set, DataType::float16, ReduceOp::prod).reduce(product.data(), all.data(), one.data(), 2 * all.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool nan = std::isnan(testing::half_value(all[i]));
      if (nan ? !std::isnan(testing::half_value(product[i])) : product[i] != all[i]) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("the kernel sets agree bit for bit on all pairs of special floats") {
  const float awkward[] = {0.0F,
                           -0.0F,
                           1.0F,
                           -1.0F,
                           3.4e38F,
                           -3.4e38F,
                           1e-45F,
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           65519.0F,
                           65520.0F};
  std::vector<float> a;
  std::vector<float> b;
  for (const float x : awkward) {
    for (const float y : awkward) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  std::vector<std::uint16_t> ha;
  std::vector<std::uint16_t> hb;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ha.push_back(testing::bfloat_bits(a[i]));
    hb.push_back(testing::bfloat_bits(b[i]));
  }
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
    std::vector<std::vector<float>> floats;
    std::vector<std::vector<std::uint16_t>> halves;
    for (const KernelSet* set : kernel_sets()) {
      floats.emplace_back(a.size());
      kernel(*set, DataType::float32, op).reduce(floats.back().data(), a.data(), b.data(), 4 * a.size());
      halves.emplace_back(a.size());
      kernel(*set, DataType::bfloat16, op).reduce(halves.back().data(), ha.data(), hb.data(), 2 * a.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        const bool both_nan = std::isnan(floats.back()[i]) && std::isnan(floats.front()[i]);
        CHECK((both_nan || floats.back()[i] == floats.front()[i]));
        const bool halves_nan = std::isnan(testing::bfloat_value(halves.back()[i]));
        CHECK(halves_nan == std::isnan(testing::bfloat_value(halves.front()[i])));
        if (!halves_nan) CHECK(halves.back()[i] == halves.front()[i]);
      }
    }
  }
}

TEST_CASE("min and max return a NaN if either operand is one") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a = {nan, 1, 2, nan, 5};
  const std::vector<float> b = {1, nan, 3, nan, 4};
  for (const KernelSet* set : kernel_sets()) {
    CAPTURE(set->name);
    std::vector<float> least(a.size());
    std::vector<float> most(a.size());
    kernel(*set, DataType::float32, ReduceOp::min).reduce(least.data(), a.data(), b.data(), 4 * a.size());
    kernel(*set, DataType::float32, ReduceOp::max).reduce(most.data(), a.data(), b.data(), 4 * a.size());
    for (const std::size_t i : {0, 1, 3}) {
      CHECK(std::isnan(least[i]));
      CHECK(std::isnan(most[i]));
    }
    CHECK(least[2] == 2);
    CHECK(most[2] == 3);
    CHECK(least[4] == 4);
    CHECK(most[4] == 5);
  }
}

TEST_CASE("integer division truncates toward zero, also for divisors that the type cannot represent") {
  for (const KernelSet* set : kernel_sets()) {
    std::vector<std::int8_t> x = {-7, 7, -128, 127, 0};
    set->divide[static_cast<std::size_t>(DataType::int8)](x.data(), x.size(), 2);
    CHECK(x == std::vector<std::int8_t>{-3, 3, -64, 63, 0});
    set->divide[static_cast<std::size_t>(DataType::int8)](x.data(), x.size(), 300);
    CHECK(x == std::vector<std::int8_t>(5, 0));
    std::vector<std::uint64_t> y = {~std::uint64_t{0}, 9};
    set->divide[static_cast<std::size_t>(DataType::uint64)](y.data(), 16, 2);
    CHECK(y == std::vector<std::uint64_t>{~std::uint64_t{0} / 2, 4});
  }
}

}  // namespace
}  // namespace gc3::cpu
