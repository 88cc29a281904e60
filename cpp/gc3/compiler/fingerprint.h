// What the tracer compares values by. The verifier has a function of its own, in another field and with weights of
// another form, so that a defect of one does not let a wrong program through both.
//
// A value is a vector of counts, one per input. Two linear forms modulo the prime 2^61 - 1, with a random weight per
// form and input, are equal for two different vectors with a probability of at most 2^-120, provided that no difference
// of counts is a multiple of the modulus: the tracer counts the terms of each value exactly for that. The argument is
// in docs/architecture.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/collective.h"

namespace gc3::compiler {

// Each form is in 0 to the modulus: there are two zeros, so that no sum needs a comparison.
class Fingerprint {
 public:
  Fingerprint() = default;
  // Of random words, of which 61 bits each count.
  Fingerprint(std::uint64_t a, std::uint64_t b) : forms_{a & kModulus, b & kModulus} {}

  bool operator==(const Fingerprint& other) const {
    return forms_[0] % kModulus == other.forms_[0] % kModulus && forms_[1] % kModulus == other.forms_[1] % kModulus;
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

// The fingerprints of a collective's inputs and of what it demands.
class Fingerprints {
 public:
  Fingerprints() = default;
  // New ones from the system's randomness, for one program.
  static Result<Fingerprints> draw(const model::Collective& collective);
  // For tests: of two words per input, rank by rank. With words that the program's author knows, nothing is shown.
  Fingerprints(const model::Collective& collective, std::span<const std::uint64_t> words);
  static std::size_t words_of(const model::Collective& collective);

  const Fingerprint& input(std::uint32_t rank, std::uint32_t index) const { return inputs_[first_[rank] + index]; }
  Fingerprint sum(const model::Demand& demand) const;

 private:
  std::vector<std::size_t> first_;  // by rank: where its inputs begin
  std::vector<Fingerprint> inputs_;
  std::vector<Fingerprint> over_ranks_;  // by index: over all ranks that have it
};

}  // namespace gc3::compiler
