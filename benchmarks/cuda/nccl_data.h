// The calls that nccl_perf.cc makes, what ranks give to them, and what they must get.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gc3::nccl_perf {

struct Type {
  const char* name;
  std::size_t bytes;
  unsigned exponent;  // bits; 0: an integer
  unsigned mantissa;
};
// In the order of nccl.h.
constexpr std::array<Type, 12> kTypes = {{{"int8", 1, 0, 0},
                                          {"uint8", 1, 0, 0},
                                          {"int32", 4, 0, 0},
                                          {"uint32", 4, 0, 0},
                                          {"int64", 8, 0, 0},
                                          {"uint64", 8, 0, 0},
                                          {"half", 2, 5, 10},
                                          {"float", 4, 8, 23},
                                          {"double", 8, 11, 52},
                                          {"bfloat16", 2, 8, 7},
                                          {"fp8_e4m3", 1, 4, 3},
                                          {"fp8_e5m2", 1, 5, 2}}};
constexpr std::array<const char*, 5> kOps = {"sum", "prod", "max", "min", "avg"};
enum class Kind { all_reduce, all_gather, reduce_scatter, alltoall, broadcast, reduce, gather, scatter };
constexpr std::array<const char*, 8> kKinds = {"all_reduce", "all_gather", "reduce_scatter", "alltoall",
                                               "broadcast",  "reduce",     "gather",         "scatter"};

struct Test {
  Kind kind;
  int type, op, root;
};

inline bool reduces(Kind k) { return k == Kind::all_reduce || k == Kind::reduce_scatter || k == Kind::reduce; }
inline bool rooted(Kind k) {
  return k == Kind::broadcast || k == Kind::reduce || k == Kind::gather || k == Kind::scatter;
}
inline bool splits(Kind k) { return k != Kind::all_reduce && k != Kind::broadcast && k != Kind::reduce; }
inline bool gives_all(Kind k) { return k == Kind::reduce_scatter || k == Kind::alltoall || k == Kind::scatter; }
inline bool takes_all(Kind k) { return k == Kind::all_gather || k == Kind::alltoall || k == Kind::gather; }

// What a rank gives: small numbers, whose results all types hold exactly.
inline unsigned given(const Test& test, int rank, std::size_t index) {
  if (test.op == 4 && reduces(test.kind)) rank = 0;
  std::uint64_t mixed = (static_cast<std::uint64_t>(rank) << 40U) + index + 1;
  mixed *= 0x9e3779b97f4a7c15U;
  mixed ^= mixed >> 29U;
  mixed *= 0xbf58476d1ce4e5b9U;
  const auto bits = static_cast<unsigned>(mixed >> 32U);
  if (!reduces(test.kind)) return bits & 7U;
  if (test.op == 1) return rank < 3 ? 1 + (bits & 1U) : 1;
  if (test.op == 2 || test.op == 3) return bits & 3U;
  return rank < 8 ? bits & 1U : 0;
}

inline unsigned expected(const Test& test, int ranks, int rank, std::size_t count, std::size_t index) {
  const std::size_t block = count == 0 ? 0 : index / count;
  switch (test.kind) {
    case Kind::all_gather:
    case Kind::gather:
      return given(test, static_cast<int>(block), index % count);
    case Kind::alltoall:
      return given(test, static_cast<int>(block), static_cast<std::size_t>(rank) * count + index % count);
    case Kind::broadcast:
      return given(test, test.root, index);
    case Kind::scatter:
      return given(test, test.root, static_cast<std::size_t>(rank) * count + index);
    default:
      break;
  }
  if (test.kind == Kind::reduce_scatter) index += static_cast<std::size_t>(rank) * count;
  if (test.op == 4) return given(test, 0, index);
  unsigned result = given(test, 0, index);
  for (int r = 1; r < ranks; ++r) {
    const unsigned more = given(test, r, index);
    if (test.op == 0) result += more;
    if (test.op == 1) result *= more;
    if (test.op == 2) result = std::max(result, more);
    if (test.op == 3) result = std::min(result, more);
  }
  return result;
}

inline std::uint64_t encoded(const Type& type, unsigned value) {
  if (type.exponent == 0 || value == 0) return value;
  const auto power = static_cast<unsigned>(std::bit_width(value)) - 1;
  const std::uint64_t bias = (1U << (type.exponent - 1)) - 1;
  const std::uint64_t rest = value - (1U << power);
  return (power + bias) << type.mantissa | (rest << type.mantissa) >> power;
}

}  // namespace gc3::nccl_perf
