// A commutative 128-bit hash of a multiset of inputs: the hash of a reduction is the sum of the hashes of its parts.
#pragma once

#include <cstdint>

namespace gc3 {

struct Hash128 {
  std::uint64_t hi = 0;
  std::uint64_t lo = 0;

  bool operator==(const Hash128&) const = default;

  // Addition modulo 2^128: the order of the parts does not matter, their multiplicity does.
  Hash128 operator+(Hash128 other) const {
    Hash128 sum{hi + other.hi, lo + other.lo};
    sum.hi += sum.lo < lo ? 1U : 0U;
    return sum;
  }
};

// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

// Hash of the input chunk (rank, index); the odd constant keeps {} and {input} apart.
constexpr Hash128 input_hash(std::uint32_t rank, std::uint32_t index) {
  const std::uint64_t key = (static_cast<std::uint64_t>(rank) << 32U) | index;
  return Hash128{mix64(mix64(key)), mix64(key ^ 0xd6e8feb86659fd93U) | 1U};
}

}  // namespace gc3
