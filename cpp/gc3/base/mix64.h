// Mixes 64-bit words, for hash tables and reproducible test data. Collisions are easy to construct: no proof uses it.
#pragma once

#include <cstdint>

namespace gc3 {

// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

}  // namespace gc3
