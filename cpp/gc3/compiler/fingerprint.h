// How the tracer compares values. The verifier uses a different function, in another field and with weights of another
// form, so that one defect does not let a wrong program pass both.
//
// A value is a vector of counts, one per input. Its fingerprint is two linear forms modulo the prime 2^61 - 1, with a
// random weight per form and input. Two different vectors have equal fingerprints with a probability of at most 2^-120,
// provided that no difference of counts is a multiple of the modulus. To ensure that, the tracer also counts the terms
// of each value exactly. docs/architecture.md has the proof.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/collective.h"

namespace gc3::compiler {

// Each form is in 0 to the modulus, inclusive: zero has two representations, so that no sum needs a comparison.
class Fingerprint {
 public:
  Fingerprint() = default;
  // Made of random words; 61 bits of each are used.
  Fingerprint(std::uint64_t a, std::uint64_t b) : forms_{a & kModulus, b & kModulus} {}

  bool operator==(const Fingerprint& other) const {
    return forms_[0] % kModulus == other.forms_[0] % kModulus && forms_[1] % kModulus == other.forms_[1] % kModulus;
  }
  bool operator<(const Fingerprint& other) const {
    return std::pair(forms_[0] % kModulus, forms_[1] % kModulus) <
           std::pair(other.forms_[0] % kModulus, other.forms_[1] % kModulus);
  }
  Fingerprint operator+(const Fingerprint& other) const {
    Fingerprint sum;
    for (std::size_t k = 0; k < forms_.size(); ++k) sum.forms_[k] = folded(forms_[k] + other.forms_[k]);
    return sum;
  }

 private:
  static constexpr std::uint64_t kModulus = (std::uint64_t{1} << 61U) - 1;
  static std::uint64_t folded(std::uint64_t value) { return (value & kModulus) + (value >> 61U); }  // 2^61 is 1

  std::array<std::uint64_t, 2> forms_{};
};

// The fingerprints of a collective's inputs and of its postcondition. They do not know linear operations: see Tracer.
class Fingerprints {
 public:
  Fingerprints() = default;
  // New ones from the system's random numbers, for one program.
  static Result<Fingerprints> draw(const model::Collective& collective);
  // For tests: made of two words per input, rank by rank. If the program's author knows the words, nothing is proven.
  Fingerprints(const model::Collective& collective, std::span<const std::uint64_t> words);
  static std::size_t words_of(const model::Collective& collective);

  // What a compute operation makes of arguments, each with the number of its terms: random words, which are drawn when
  // they are first asked for.
  struct Argument {
    std::uint32_t terms = 0;
    Fingerprint value;
    bool operator<(const Argument& other) const {
      return terms != other.terms ? terms < other.terms : value < other.value;
    }
  };
  Result<Fingerprint> result(std::uint32_t operation, std::uint32_t result, std::vector<Argument> arguments);

  const Fingerprint& input(std::uint32_t rank, std::uint32_t index) const { return inputs_[first_[rank] + index]; }
  Fingerprint sum(const model::Demand& demand) const;

 private:
  std::vector<std::size_t> first_;  // by rank: where its inputs begin
  std::vector<Fingerprint> inputs_;
  const Fingerprint& of_term(const model::InputChunk& term) const;

  std::vector<Fingerprint> over_ranks_;  // by index: summed over all ranks that have it
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::vector<Argument>>, Fingerprint> results_;
  std::vector<Fingerprint> of_calls_;  // in the postcondition
};

}  // namespace gc3::compiler
