// Coordinates of the rank that a program is written for, and indices that depend on them: what `gc3.me` gives.
#pragma once

#include <cstdint>
#include <vector>

// The type of a rank or an index in signatures.
#define GC3_PLACE "int | Coordinate | tuple[int | Coordinate, ...]"

namespace gc3::bindings {

// The constant, and for each term `factor` times coordinate + offset, modulo the number of values of the coordinate.
struct Relative {
  struct Term {
    std::uint32_t coordinate = 0;
    std::int64_t values = 1;
    std::int64_t offset = 0;  // in 0 to values - 1
    std::int64_t factor = 1;
  };
  std::vector<Term> terms;
  std::int64_t constant = 0;

  bool is_coordinate() const { return terms.size() == 1 && terms.front().factor == 1 && constant == 0; }
};

}  // namespace gc3::bindings
