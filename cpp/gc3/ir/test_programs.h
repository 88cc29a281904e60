// Shared by the tests of this layer: programs to write and read, and a counter of the size of allocations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "gc3/ir/builder.h"
#include "gc3/ir/program.h"

namespace gc3::ir::testing {

// A sequence of numbers that is the same on every machine (the standard distributions are not).
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint32_t below(std::uint64_t bound) { return static_cast<std::uint32_t>(engine_() % bound); }

 private:
  std::mt19937_64 engine_;
};

// The two-rank program of the comment in text.h.
Program two_ranks();
// A program with every opcode, custom collectives and odd names among them. It has the layout that program.h describes,
// but computes nothing sensible.
Program random_program(std::uint64_t seed);

// A program whose parts all refer to each other: everything that the exchange format can hold.
Program random_coherent(std::uint64_t seed);

// The largest single allocation since the last reset, in bytes.
void reset_largest_allocation();
std::size_t largest_allocation();

}  // namespace gc3::ir::testing
