#include "gc3/synth/flow.h"

#include <algorithm>

namespace gc3::synth {

std::uint32_t Flow::add(std::uint32_t tail, std::uint32_t head, Amount capacity) {
  const auto arc = static_cast<std::uint32_t>(capacity_.size());
  out_[tail].push_back(2 * arc);
  out_[head].push_back((2 * arc) + 1);
  head_.push_back(head);
  head_.push_back(tail);
  left_.push_back(capacity);
  left_.push_back(0);
  capacity_.push_back(capacity);
  return arc;
}

void Flow::reset() {
  for (std::size_t a = 0; a < capacity_.size(); ++a) {
    left_[2 * a] = capacity_[a];
    left_[(2 * a) + 1] = 0;
  }
}

Amount Flow::run(std::uint32_t source, std::uint32_t sink, Amount most) {
  Amount total = 0;
  while (total < most && levels(source, sink)) {
    place_.assign(out_.size(), 0);
    while (total < most) {
      const Amount more = push(source, sink, most - total);
      if (more == 0) break;
      total += more;
    }
  }
  return total;
}

bool Flow::levels(std::uint32_t source, std::uint32_t sink) {
  level_.assign(out_.size(), kNone);
  level_[source] = 0;
  queue_.assign(1, source);
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const std::uint32_t vertex = queue_[i];
    for (const std::uint32_t half : out_[vertex]) {
      const std::uint32_t head = head_[half];
      if (left_[half] > 0 && level_[head] == kNone) {
        level_[head] = level_[vertex] + 1;
        queue_.push_back(head);
      }
    }
    if (level_[sink] != kNone) return true;
  }
  return false;
}

// Recursion is as deep as the length of a shortest path.
Amount Flow::push(std::uint32_t vertex, std::uint32_t sink, Amount most) {  // NOLINT(misc-no-recursion)
  if (vertex == sink) return most;
  for (std::uint32_t& i = place_[vertex]; i < out_[vertex].size(); ++i) {
    const std::uint32_t half = out_[vertex][i];
    const std::uint32_t head = head_[half];
    if (left_[half] <= 0 || level_[head] != level_[vertex] + 1) continue;
    const Amount amount = push(head, sink, std::min(most, left_[half]));
    if (amount > 0) {
      left_[half] -= amount;
      left_[half ^ 1U] += amount;
      return amount;
    }
  }
  return 0;
}

}  // namespace gc3::synth
