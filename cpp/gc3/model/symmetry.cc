#include "gc3/model/symmetry.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"

namespace gc3::model {

Result<Symmetry> Symmetry::of(std::vector<std::uint32_t> shape) {
  Symmetry out;
  out.strides_.assign(shape.size(), 1);
  std::uint64_t ranks = 1;
  for (std::size_t k = shape.size(); k-- > 0;) {
    if (shape[k] == 0) return Diagnostic(ErrorCode::BadArgument, "a coordinate without values");
    out.strides_[k] = static_cast<std::uint32_t>(ranks);
    ranks *= shape[k];
    if (ranks > kMaxBufferChunks) return Diagnostic(ErrorCode::BadArgument, "a machine of more than 2^22 ranks");
  }
  out.shape_ = std::move(shape);
  return out;
}

std::uint64_t Symmetry::ranks() const { return shape_.empty() ? 0 : std::uint64_t{strides_.front()} * shape_.front(); }

std::uint32_t Symmetry::plus(std::uint32_t a, std::uint32_t b) const { return moved(of_ranks(1), a, 1, b); }

std::uint32_t Symmetry::minus(std::uint32_t a, std::uint32_t b) const {
  std::uint32_t out = 0;
  for (std::uint32_t k = 0; k < shape_.size(); ++k) {
    out += (coordinate(a, k) + shape_[k] - coordinate(b, k)) % shape_[k] * strides_[k];
  }
  return out;
}

Axes Symmetry::of_ranks(std::uint32_t chunks) const {
  Axes out;
  for (std::uint32_t k = static_cast<std::uint32_t>(shape_.size()); k-- > 0;) {
    if (shape_[k] > 1) out.push_back({k, strides_[k] * chunks});
  }
  return out;
}

std::uint32_t Symmetry::moved(const Axes& axes, std::uint32_t index, std::uint32_t count, std::uint32_t by) const {
  std::uint32_t out = index;
  for (const Axis& axis : axes) {
    if (covers(axis, index, count)) continue;
    const std::uint32_t values = shape_[axis.coordinate];
    const std::uint32_t digit = index / axis.factor % values;
    out += ((digit + coordinate(by, axis.coordinate)) % values) * axis.factor;
    out -= digit * axis.factor;
  }
  return out;
}

bool Symmetry::covers(const Axis& axis, std::uint64_t index, std::uint64_t count) const {
  return index % span(axis) == 0 && count % span(axis) == 0;
}

bool Symmetry::in_one_digit(const Axis& axis, std::uint64_t index, std::uint64_t count) const {
  return count != 0 && index / axis.factor == (index + count - 1) / axis.factor;
}

bool Symmetry::keeps(const Axes& axes, std::uint64_t index, std::uint64_t count) const {
  return std::ranges::all_of(
      axes, [&](const Axis& axis) { return covers(axis, index, count) || in_one_digit(axis, index, count); });
}

Status Symmetry::check(const Collective& collective, const Axes& input, const Axes& output) const {
  const auto refuse = [&](const std::string& why) { return Status(Diagnostic(ErrorCode::BadArgument, why)); };
  const std::string name(collective.name());
  if (!is_symmetric(collective.kind()) || is_rooted(collective.kind())) {
    return refuse("the ranks of " + name + " differ, so no program of it is the same on all of them");
  }
  if (ranks() != collective.ranks()) {
    return refuse("a machine of " + std::to_string(ranks()) + " ranks, and the collective has " +
                  std::to_string(collective.ranks()));
  }
  // Inside a block both buffers move alike; blocks that belong to ranks move as the ranks do.
  const auto inside = [&](const Axes& axes, std::uint32_t blocks) {
    Axes out = axes;
    if (blocks == 1) return std::pair(out, true);
    const Axes expected = of_ranks(collective.chunks());
    const auto split = std::ranges::find_if(out, [&](const Axis& a) { return a.factor >= collective.chunks(); });
    const bool same = std::ranges::equal(split, out.end(), expected.begin(), expected.end());
    out.erase(split, out.end());
    return std::pair(out, same);
  };
  const auto [in, in_fits] = inside(input, collective.input_blocks(0));
  const auto [out, out_fits] = inside(output, collective.output_blocks(0));
  std::uint64_t end = 1;
  for (const Axis& axis : in) {
    if (axis.coordinate >= shape_.size() || axis.factor == 0 || axis.factor % end != 0) {
      return refuse("the axes of input overlap, or have no coordinate");
    }
    end = span(axis);
  }
  if (!in_fits || !out_fits || in != out || collective.chunks() % end != 0) {
    return refuse("translations of the machine do not map what " + name + " requires to itself");
  }
  return {};
}

}  // namespace gc3::model
