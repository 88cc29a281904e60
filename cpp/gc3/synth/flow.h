// Maximum flow with whole capacities (Dinic), on graphs that are evaluated many times with different capacities.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/base/ids.h"

namespace gc3::synth {

using Amount = std::int64_t;
inline constexpr Amount kEndless = Amount{1} << 60;

class Flow {
 public:
  explicit Flow(std::uint32_t vertices) : out_(vertices) {}

  std::uint32_t vertices() const { return static_cast<std::uint32_t>(out_.size()); }
  // Adds an arc and returns its number.
  std::uint32_t add(std::uint32_t tail, std::uint32_t head, Amount capacity);
  // Sets the capacity of an arc without flow, for `run` after `reset`.
  void set(std::uint32_t arc, Amount capacity) { capacity_[arc] = capacity; }
  // Clears all flow.
  void reset();
  // Adds flow from `source` to `sink`, up to `most`; returns the amount.
  Amount run(std::uint32_t source, std::uint32_t sink, Amount most = kEndless);
  // After a `run` that added less than `most`: whether a vertex is on the source's side of a minimum cut.
  bool reached(std::uint32_t vertex) const { return level_[vertex] != kNone; }
  Amount flow(std::uint32_t arc) const { return left_[(std::size_t{2} * arc) + 1]; }

 private:
  bool levels(std::uint32_t source, std::uint32_t sink);
  Amount push(std::uint32_t vertex, std::uint32_t sink, Amount most);

  std::vector<std::vector<std::uint32_t>> out_;  // half arcs: 2a is arc a, 2a + 1 its reverse
  std::vector<std::uint32_t> head_;              // of half arcs
  std::vector<Amount> left_;                     // of half arcs
  std::vector<Amount> capacity_;
  std::vector<std::uint32_t> level_;
  std::vector<std::uint32_t> place_;
  std::vector<std::uint32_t> queue_;
};

}  // namespace gc3::synth
