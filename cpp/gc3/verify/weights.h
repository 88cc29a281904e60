// How the verifier compares values: a random linear form of the multiplicity of each input.
//
// A value is a vector of counts, one per input. The weights come from a field of p = 2^127 - 1 elements and are drawn
// after the program is fixed. Two different vectors have equal sums with a probability of at most 2^-125, provided that
// no difference of counts is a multiple of p. To ensure that, Execution also counts the terms of each value exactly.
// docs/architecture.md has the proof.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/collective.h"

namespace gc3::verify {

// An integer modulo the prime p = 2^127 - 1, in 0 to p, inclusive: zero has two representations, so that no sum needs a
// comparison. Two words rather than one of 128 bits, which would be aligned to 16 bytes.
class Residue {
 public:
  Residue() = default;
  // Any 128 bits, of which 127 are used.
  Residue(std::uint64_t hi, std::uint64_t lo) : Residue(wide(hi, lo) & kModulus) {}

  bool operator==(Residue other) const { return canonical() == other.canonical(); }
  Residue operator+(Residue other) const { return Residue(folded(wide(hi_, lo_) + wide(other.hi_, other.lo_))); }
  Residue operator*(Residue other) const {
    // In words of 64 bits; no sum reaches 2^128.
    const Wide low = Wide{lo_} * other.lo_;
    const Wide middle = Wide{hi_} * other.lo_ + Wide{lo_} * other.hi_ + (low >> 64U);
    const Wide high = Wide{hi_} * other.hi_ + (middle >> 64U);
    const Wide bottom = middle << 64U | static_cast<std::uint64_t>(low);
    return Residue(folded((bottom & kModulus) + (high << 1U | bottom >> 127U)));
  }
  std::uint64_t hi() const { return static_cast<std::uint64_t>(canonical() >> 64U); }
  std::uint64_t lo() const { return static_cast<std::uint64_t>(canonical()); }

 private:
  __extension__ typedef unsigned __int128 Wide;
  static constexpr Wide kModulus = (Wide{1} << 127U) - 1;

  explicit Residue(Wide value)
      : hi_(static_cast<std::uint64_t>(value >> 64U)), lo_(static_cast<std::uint64_t>(value)) {}
  static Wide wide(std::uint64_t hi, std::uint64_t lo) { return Wide{hi} << 64U | lo; }
  static Wide folded(Wide value) { return (value & kModulus) + (value >> 127U); }  // up to 2 p; 2^127 is 1
  Wide canonical() const { return wide(hi_, lo_) == kModulus ? 0 : wide(hi_, lo_); }

  std::uint64_t hi_ = 0;
  std::uint64_t lo_ = 0;
};

// The values of what compute operations make: a random residue for each operation, result and list of arguments, drawn
// when it is first asked for. So nothing is assumed of an operation but that equal arguments give equal results.
class Functions {
 public:
  // The number of terms of an argument, and its value.
  struct Argument {
    std::uint32_t terms = 0;
    Residue value;
  };

  // Equal to no other value.
  Residue unique() { return draw(); }
  Residue value(std::uint32_t operation, std::uint32_t result, std::span<const Argument> arguments);
  // Why values could not be drawn, once one could not; it is then without meaning.
  const Status& status() const { return status_; }

 private:
  Residue draw();

  std::map<std::vector<std::uint64_t>, Residue> known_;
  std::vector<std::uint64_t> words_;  // random and not yet used
  Status status_;
};

// The weight of an input is the product of a number for its rank and one for its index: fewer numbers, the same proof.
class Weights {
 public:
  // New ones from the system's random numbers, for one verification.
  static Result<Weights> draw(const model::Collective& collective);
  // For tests: if the program's author knows the weights, nothing is proven.
  Weights(std::vector<Residue> of_ranks, std::vector<Residue> of_indices);

  Residue input(std::uint32_t rank, std::uint32_t index) const { return of_ranks_[rank] * of_indices_[index]; }
  Residue sum(const model::Demand& demand) const;
  // Gives the terms of the postcondition that operations make their values, which `sum` then adds.
  void evaluate(const model::Collective& collective, Functions& functions);

 private:
  Residue of_term(const model::InputChunk& term) const;

  std::vector<Residue> of_ranks_;
  std::vector<Residue> of_indices_;
  Residue all_ranks_;
  std::vector<Residue> of_calls_;
};

}  // namespace gc3::verify
