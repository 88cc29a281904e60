// Indices: the value that stands for "none", and typed indices, which cannot be used to index the wrong array.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace gc3 {

// Stands for "none" in a 32-bit index or number.
inline constexpr std::uint32_t kNone = 0xffffffffU;

template <class Tag>
struct Id {
  std::uint32_t value = kNone;

  constexpr Id() = default;
  constexpr explicit Id(std::uint32_t v) : value(v) {}
  static constexpr Id none() { return Id(); }
  constexpr bool exists() const { return value != kNone; }
  constexpr auto operator<=>(const Id&) const = default;
};

using OpId = Id<struct OpTag>;         // chunk operation of a trace, in program order
using NodeId = Id<struct NodeTag>;     // node of an instruction DAG
using LocationId = Id<struct LocTag>;  // source location of a trace

}  // namespace gc3

template <class Tag>
struct std::hash<gc3::Id<Tag>> {
  std::size_t operator()(gc3::Id<Tag> id) const noexcept { return id.value; }
};
