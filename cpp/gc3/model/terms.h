// The inputs that are reduced into a value, each with its multiplicity.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gc3/model/collective.h"

namespace gc3::model {

using Terms = std::map<InputChunk, std::uint64_t>;

// A few steps can double a count hundreds of times, so counts stop at this value, which then means "this or more".
inline constexpr std::uint64_t kManyTimes = std::uint64_t{1} << 62U;
constexpr std::uint64_t plus_times(std::uint64_t a, std::uint64_t b) { return a + b < kManyTimes ? a + b : kManyTimes; }
constexpr std::uint64_t both_times(std::uint64_t a, std::uint64_t b) {
  return a != 0 && b > kManyTimes / a ? kManyTimes : a * b;
}

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

// The results of compute operations in terms: {kComputed, k} is number k here, so that equal ones have one number.
class Calls {
 public:
  Calls() = default;
  // Those of the postcondition of a collective, and the names of its tensors and operations.
  explicit Calls(const Collective& collective);
  // The same if the operations had other properties.
  Calls(const Collective& collective, std::vector<Properties> properties);

  // What an operation makes: a sum of results whose linear operands have a single term each. None: the results are too
  // many to list, which holds for all later calls, too.
  std::optional<Terms> made(std::uint32_t operation, std::uint32_t result, const std::vector<Terms>& arguments);
  // Whether there were too many to list, also in the postcondition.
  bool full() const { return room_ == 0; }
  // The required value of an output chunk, with the numbers of this.
  Terms demanded(std::uint32_t rank, std::uint32_t index) const;
  // "norm(x[1] of rank 0 + x[1] of rank 1)", if it is one or the collective has tensors; none: a plain input.
  std::optional<std::string> name(const InputChunk& term) const;
  bool empty() const { return !collective_.has_tensors(); }

 private:
  struct Call {
    std::uint32_t operation;
    std::uint32_t result;
    std::vector<Terms> arguments;
    std::string of_whole = {};  // as messages name a part that the properties do not know; "": none
    auto operator<=>(const Call&) const = default;
  };
  InputChunk number(Call call);
  void spell(const InputChunk& term, std::string& out) const;
  void spell(const Terms& terms, std::string& out) const;

  Terms sum_of(const std::vector<InputChunk>& terms) const;

  Collective collective_;
  std::vector<Properties> properties_;
  std::vector<Call> calls_;
  std::map<Call, std::uint32_t> numbers_;
  std::vector<Terms> of_collective_;              // per call of the postcondition: its value
  std::uint64_t room_ = std::uint64_t{1} << 20U;  // for results of linear operations
};

Terms counted(const std::vector<InputChunk>& inputs);

// The terms that `all` has in excess of `some`.
Terms difference(const Terms& all, const Terms& some);

}  // namespace gc3::model
