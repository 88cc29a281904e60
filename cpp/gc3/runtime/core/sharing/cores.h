// The cores on which a thread may run, and the share of them that one of several workers gets.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gc3/base/launch.h"

namespace gc3::core {

// Not cpu_set_t, which is limited to 1024 cores.
struct Cores {
  static constexpr std::uint32_t kMost = 4096;

  std::array<std::uint64_t, kMost / 64> words = {};

  bool operator==(const Cores&) const = default;
  // Those of the calling thread.
  static Cores own();
  // Of each NUMA node those that are among these, by the node's number; nodes without any are left out. `root` is a
  // prefix of /sys, for tests. A system that does not tell has one node.
  std::vector<Cores> by_node(const std::string& root = "") const;
  std::uint32_t count() const;
  // An equal part of these cores; if there are more workers than cores, one core, such that all have equally many. A
  // share is in one node, unless there are fewer workers than nodes, and neighbours are in the same node.
  Cores share_of(const Place& place, const std::string& root = "") const;
  // Restricts the calling thread to these. If the system refuses, it keeps its cores.
  void keep_here() const;

 private:
  Cores part(std::uint32_t first, std::uint32_t last) const;  // of these, those from `first` to `last`
};

}  // namespace gc3::core
