// The inputs that are reduced into a value, each with its multiplicity.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gc3/model/collective.h"

namespace gc3::model {

using Terms = std::map<InputChunk, std::uint64_t>;

// A few steps can double a count hundreds of times, so counts stop at this value, which then means "this or more".
inline constexpr std::uint64_t kManyTimes = std::uint64_t{1} << 62U;
constexpr std::uint64_t plus_times(std::uint64_t a, std::uint64_t b) { return a + b < kManyTimes ? a + b : kManyTimes; }

// The same for the total number of terms of a value, far above what any collective requires.
inline constexpr std::uint32_t kManyTerms = 0xffffffffU;
static_assert(kMaxTerms < kManyTerms && kMaxTotalChunks < kManyTerms);
constexpr std::uint32_t plus_terms(std::uint32_t a, std::uint32_t b) {
  const std::uint64_t sum = std::uint64_t{a} + b;
  return sum < kManyTerms ? static_cast<std::uint32_t>(sum) : kManyTerms;
}

// "1 term", "7 terms", "4294967295 terms or more".
std::string terms_text(std::uint32_t terms);
// The prefix of an input with this multiplicity: "", "3 x ", "2^62 or more x ".
std::string times_text(std::uint64_t times);

Terms counted(const std::vector<InputChunk>& inputs);

// The terms that `all` has in excess of `some`.
Terms difference(const Terms& all, const Terms& some);

}  // namespace gc3::model
