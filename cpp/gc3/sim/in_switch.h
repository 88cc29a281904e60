// What switches carry once: of a group of messages (see Carried in wiring.h), the first to begin a slice occupies the
// way that they share; the others are through when it is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "gc3/sim/state.h"
#include "gc3/sim/wiring.h"

namespace gc3::sim {

class InSwitch {
 public:
  explicit InSwitch(const Wiring& wiring) : wiring_(wiring) {}

  const Carried& of(std::uint32_t instruction) const {
    return wiring_.carried.empty() ? kPlain : wiring_.carried[instruction];
  }
  struct Through {
    Time end = 0;
    std::uint32_t resource = kNone;  // the slowest on the way; kNone: the threadblock was slower
  };
  // When the group's slice that this threadblock is at is through; nothing: no other member has begun it.
  std::optional<Through> through(std::uint32_t group, const Block& b) {
    if (group == kNone) return std::nullopt;
    const auto found = turns_.find({group, b.tile, b.slice});
    if (found == turns_.end()) return std::nullopt;
    const Through through = found->second.through;
    if (--found->second.left == 0) turns_.erase(found);
    return through;
  }
  void lead(std::uint32_t group, const Block& b, Through through) {
    if (group != kNone) turns_[{group, b.tile, b.slice}] = {through, wiring_.group_size[group] - 1};
  }

 private:
  struct Turn {
    Through through;
    std::uint32_t left;  // members that have yet to begin
  };
  static constexpr Carried kPlain{};
  const Wiring& wiring_;
  std::map<std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>, Turn> turns_;
};

}  // namespace gc3::sim
