// Whether a program of a collective remains one when its ranks get other numbers: which collectives do not care, and
// the translations of a machine, under which a program that is written from one rank's view is the same on all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/collective.h"

namespace gc3::model {

// What a rank gets depends only on which blocks are its own, and on the root.
constexpr bool is_symmetric(CollectiveKind k) { return k != CollectiveKind::alltonext && k != CollectiveKind::custom; }

// An axis of a buffer: the digit (index / factor) % d of an index, where d is the number of values of `coordinate`. A
// translation adds to the digit what it adds to the coordinate, and leaves the rest of the index.
struct Axis {
  std::uint32_t coordinate = 0;
  std::uint32_t factor = 1;
  bool operator==(const Axis&) const = default;
};
using Axes = std::vector<Axis>;  // by ascending factor; an axis ends where the next begins, or before

// Translations of the ranks of a machine: rank = (c0 * d1 + c1) * d2 + ... has the coordinates c0 < d0, c1 < d1, ...,
// and a translation adds to each of them, modulo its d. They are a product of cyclic groups that acts freely and with
// one orbit on ranks, so each is named by the rank to which it moves rank 0.
class Symmetry {
 public:
  Symmetry() = default;
  // None if a coordinate has no values.
  static Result<Symmetry> of(std::vector<std::uint32_t> shape);

  bool exists() const { return !shape_.empty(); }
  const std::vector<std::uint32_t>& shape() const { return shape_; }
  std::uint64_t ranks() const;
  std::uint32_t coordinate(std::uint32_t rank, std::uint32_t k) const { return rank / strides_[k] % shape_[k]; }
  std::uint32_t plus(std::uint32_t a, std::uint32_t b) const;
  std::uint32_t minus(std::uint32_t a, std::uint32_t b) const;
  // Rank numbers as the index of a block: an axis for each coordinate, of blocks of `chunks` chunks.
  Axes of_ranks(std::uint32_t chunks) const;
  // The number of indices after which an axis repeats itself.
  std::uint64_t span(const Axis& axis) const { return std::uint64_t{axis.factor} * shape_[axis.coordinate]; }

  // The place to which the translation `by` moves `count` chunks from `index` on. On each axis they have one digit, or
  // all of them: see `keeps`.
  std::uint32_t moved(const Axes& axes, std::uint32_t index, std::uint32_t count, std::uint32_t by) const;
  // Whether all translations keep these chunks side by side, because they have one digit of the axis or all of them.
  bool covers(const Axis& axis, std::uint64_t index, std::uint64_t count) const;
  bool in_one_digit(const Axis& axis, std::uint64_t index, std::uint64_t count) const;
  bool keeps(const Axes& axes, std::uint64_t index, std::uint64_t count) const;

  // Whether it maps the collective to itself, if the buffers have these axes: each chunk of an input has one place, and
  // what a translated output must hold is what the output must hold, translated. It does not if there is a root, or a
  // first and a last rank.
  Status check(const Collective& collective, const Axes& input, const Axes& output) const;

  bool operator==(const Symmetry&) const = default;

 private:
  std::vector<std::uint32_t> shape_;
  std::vector<std::uint32_t> strides_;
};

}  // namespace gc3::model
