#include "gc3/synth/place.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <queue>
#include <tuple>

#include "gc3/synth/load.h"

namespace gc3::synth {
namespace {

// How a schedule chooses among sends. Some prefer those with the longest way to go, others those that are due: a longer
// way makes a send due earlier, by `lead` turns for every hop. With `fullest`, edges of the bounds that have the most
// left to carry come first.
struct Choice {
  std::uint64_t lead = 0;
  bool fullest = false;
};
constexpr std::uint64_t kLongest = std::uint64_t{1} << 32U;
constexpr std::array<Choice, 7> kChoices = {
    {{0, false}, {1, false}, {3, false}, {10, false}, {kLongest, false}, {10, true}, {kLongest, true}}};

constexpr Amount kScale = 64;  // of fractions

using Clock = std::chrono::steady_clock;
// The smaller one goes first: a number from the order of preference, then the hop.
using Waiting = std::pair<std::uint64_t, std::uint32_t>;
using Queue = std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>>;

class Placing {
 public:
  Placing(const std::vector<Hop>& hops, const std::vector<std::vector<std::uint32_t>>& bounds_of,
          const std::vector<Amount>& room)
      : hops_(hops),
        loads_(loads_of(bounds_of)),
        room_(room),
        load_(room.size()),
        after_(hops.size()),
        height_(hops.size(), 1) {
    for (std::uint32_t i = 0; i < hops.size(); ++i) {
      for (const Load& each : loads_[hops[i].edge]) load_[each.bound] += each.times;
      for (const std::uint32_t before : hops[i].before) after_[before].push_back(i);
    }
    for (std::size_t i = hops.size(); i-- > 0;) {
      for (const std::uint32_t next : after_[i]) height_[i] = std::max(height_[i], height_[next] + 1);
      most_ = std::max(most_, height_[i]);
    }
  }

  std::optional<std::vector<std::uint32_t>> run(Choice choice, Clock::time_point deadline) const {
    std::vector<std::uint32_t> step(hops_.size());
    std::vector<Queue> ready(loads_.size());
    std::vector<std::uint32_t> active;  // edges with waiting hops
    const auto enter = [&](std::uint32_t i) {
      if (ready[hops_[i].edge].empty()) active.push_back(hops_[i].edge);
      ready[hops_[i].edge].emplace(hops_[i].turn + (choice.lead * (most_ - height_[i])), i);
    };
    std::vector<std::size_t> missing(hops_.size());  // hops before it that have not taken place
    for (std::uint32_t i = 0; i < hops_.size(); ++i) {
      missing[i] = hops_[i].before.size();
      if (missing[i] == 0) enter(i);
    }
    std::size_t placed = 0;
    std::vector<Amount> left;
    std::vector<std::uint32_t> sent;
    std::vector<Amount> load = load_;  // that hops without a step put on each bound
    const auto urgency = [&](std::uint32_t e) {
      Amount most = 0;
      for (const auto& [b, times] : loads_[e]) {
        if (choice.fullest && room_[b] > 0) most = std::max(most, kScale * load[b] / room_[b]);
      }
      return -most;
    };
    for (std::uint32_t now = 0; placed < hops_.size(); ++now) {
      if (Clock::now() > deadline) return std::nullopt;
      left = room_;
      sent.clear();
      using First = std::tuple<Amount, Waiting, std::uint32_t>;
      std::priority_queue<First, std::vector<First>, std::greater<>> first;  // of each edge
      for (const std::uint32_t e : active) first.emplace(urgency(e), ready[e].top(), e);
      while (!first.empty()) {
        const std::uint32_t e = std::get<2>(first.top());
        first.pop();
        if (std::ranges::any_of(loads_[e], [&](const Load& each) { return left[each.bound] < each.times; })) continue;
        for (const auto& [b, times] : loads_[e]) {
          left[b] -= times;
          load[b] -= times;
        }
        const std::uint32_t i = ready[e].top().second;
        ready[e].pop();
        step[i] = now;
        sent.push_back(i);
        if (!ready[e].empty()) first.emplace(urgency(e), ready[e].top(), e);
      }
      if (sent.empty()) return std::nullopt;  // a bound carries nothing
      placed += sent.size();
      std::erase_if(active, [&](std::uint32_t e) { return ready[e].empty(); });
      for (const std::uint32_t i : sent) {
        for (const std::uint32_t next : after_[i]) {
          if (--missing[next] == 0) enter(next);
        }
      }
    }
    return step;
  }

  // A number of steps below which there is no schedule.
  std::size_t fewest() const {
    std::size_t steps = hops_.empty() ? 0 : most_;
    for (std::size_t b = 0; b < room_.size(); ++b) {
      if (room_[b] > 0) steps = std::max(steps, static_cast<std::size_t>((load_[b] + room_[b] - 1) / room_[b]));
    }
    return steps;
  }

 private:
  const std::vector<Hop>& hops_;
  std::vector<std::vector<Load>> loads_;
  const std::vector<Amount>& room_;
  std::vector<Amount> load_;  // that all hops put on each bound
  std::vector<std::vector<std::uint32_t>> after_;
  std::vector<std::uint32_t> height_;  // the number of hops after and including a hop
  std::uint32_t most_ = 1;
};

}  // namespace

std::optional<std::vector<std::uint32_t>> place_hops(const std::vector<Hop>& hops,
                                                     const std::vector<std::vector<std::uint32_t>>& bounds_of,
                                                     const std::vector<Amount>& room, double seconds) {
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e8)));
  const Placing placing(hops, bounds_of, room);
  std::optional<std::vector<std::uint32_t>> best;
  for (const Choice choice : kChoices) {
    std::optional<std::vector<std::uint32_t>> found = placing.run(choice, deadline);
    if (!found) continue;
    if (found->empty()) return found;
    if (!best || std::ranges::max(*found) < std::ranges::max(*best)) best = std::move(found);
    if (std::ranges::max(*best) + std::size_t{1} <= placing.fewest()) break;
  }
  return best;
}

}  // namespace gc3::synth
