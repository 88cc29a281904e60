// The former comparison of values: one unkeyed hash, added modulo 2^128. Kept for tests that show how to break it.
#pragma once

#include <vector>

#include "gc3/base/mix64.h"
#include "gc3/model/collective.h"
#include "gc3/model/test_lattice.h"

namespace gc3::model::test {

inline UInt128 old_hash(std::uint32_t rank, std::uint32_t index) {
  const std::uint64_t key = std::uint64_t{rank} << 32U | index;
  return UInt128{mix64(mix64(key))} << 64U | mix64(key ^ 0xd6e8feb86659fd93U) | 1U;
}

inline UInt128 old_hash(const Demand& demand) {
  UInt128 sum = 0;
  for (std::uint32_t k = 0; k < demand.size(); ++k) sum += old_hash(demand[k].rank, demand[k].index);
  return sum;
}

// Of all inputs of ranks that have `chunks` each, rank by rank.
inline Form old_form(std::uint32_t ranks, std::uint32_t chunks) {
  Form form{{}, {Int128{1} << 64U, 0}};
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (std::uint32_t i = 0; i < chunks; ++i) form.weights.push_back(old_hash(r, i));
  }
  return form;
}

// Two ranks of `exchanged.size()` / 2 chunks each. Rank 0 must end with one chunk that holds the inputs with positive
// numbers, with these multiplicities.
inline Result<Collective> demanding(const Numbers& exchanged) {
  const auto chunks = static_cast<std::uint32_t>(exchanged.size() / 2);
  CustomCollective data{"forged", {chunks, chunks}, {1, 0}, {std::nullopt, std::nullopt}, {0}, {}};
  for (std::uint32_t k = 0; k < exchanged.size(); ++k) {
    for (std::int64_t n = 0; n < exchanged[k]; ++n) data.terms.push_back({k / chunks, k % chunks});
  }
  data.begin.push_back(data.terms.size());
  return Collective::custom(std::move(data), 2, 1, false);
}

}  // namespace gc3::model::test
