// The cores on which a thread may run, and the share of them that one of several workers gets.
#pragma once

#include <array>
#include <cstdint>

#include "gc3/base/launch.h"

namespace gc3::core {

// Not cpu_set_t, which is limited to 1024 cores.
struct Cores {
  static constexpr std::uint32_t kMost = 4096;

  std::array<std::uint64_t, kMost / 64> words = {};

  bool operator==(const Cores&) const = default;
  // Those of the calling thread.
  static Cores own();
  std::uint32_t count() const;
  // An equal part of these cores; if there are more workers than cores, one core, such that all have equally many.
  Cores share_of(const Place& place) const;
  // Restricts the calling thread to these. If the system refuses, it keeps its cores.
  void keep_here() const;
};

}  // namespace gc3::core
