#include "gc3/synth/place.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <queue>
#include <tuple>

#include "gc3/synth/load.h"

namespace gc3::synth {
namespace {

// What goes first, apart from the longest way to go.
enum class First : std::uint8_t {
  kDue,      // what is due; if that is equal, the edge with the lower number
  kFullest,  // edges in the bound that has the most left to carry
  kFull,     // edges whose bounds together have the most left to carry; if that is equal, another edge in each step
  kAny,      // another edge in each step
};
// How a schedule chooses among sends. Some prefer those with the longest way to go, others those that are due: a longer
// way makes a send due earlier, by `lead` turns for every hop.
struct Choice {
  std::uint64_t lead = 0;
  First first = First::kDue;
};
constexpr std::uint64_t kLongest = std::uint64_t{1} << 32U;
constexpr std::array<Choice, 7> kChoices = {{{0, First::kDue},
                                             {1, First::kDue},
                                             {3, First::kDue},
                                             {10, First::kDue},
                                             {kLongest, First::kDue},
                                             {10, First::kFullest},
                                             {kLongest, First::kFullest}}};
// Where many bounds are full, always preferring the same edges leaves others idle. These are tried if there may be much
// to gain.
constexpr std::array<Choice, 2> kMixedChoices = {{{0, First::kFull}, {kLongest, First::kAny}}};
constexpr double kMuch = 0.02;

// A number that differs from edge to edge and from step to step.
constexpr std::uint64_t mixed(std::uint64_t edge, std::uint64_t step) {
  std::uint64_t hash = (edge * 0x9E3779B97F4A7C15U) ^ (step * 0xC2B2AE3D27D4EB4FU);
  hash ^= hash >> 29U;
  hash *= 0xBF58476D1CE4E5B9U;
  return hash >> 54U;
}
constexpr Amount kMixed = 1024;  // of such numbers

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
    const auto urgency = [&](std::uint32_t e, std::uint32_t now) {
      if (choice.first == First::kDue) return Amount{0};
      Amount most = 0;
      Amount sum = 0;
      for (const auto& [b, times] : loads_[e]) {
        if (choice.first == First::kAny || room_[b] <= 0) continue;
        most = std::max(most, kScale * load[b] / room_[b]);
        sum += kScale * load[b] / room_[b];
      }
      return choice.first == First::kFullest ? -most : static_cast<Amount>(mixed(e, now)) - (sum * kMixed);
    };
    for (std::uint32_t now = 0; placed < hops_.size(); ++now) {
      if (Clock::now() > deadline) return std::nullopt;
      left = room_;
      sent.clear();
      using Front = std::tuple<Amount, Waiting, std::uint32_t>;
      std::priority_queue<Front, std::vector<Front>, std::greater<>> first;  // of each edge
      for (const std::uint32_t e : active) first.emplace(urgency(e, now), ready[e].top(), e);
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
        if (!ready[e].empty()) first.emplace(urgency(e, now), ready[e].top(), e);
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

  // About the fewest steps: what the fullest bound carries, and the longest way.
  double least() const {
    double most = 0;
    for (std::size_t b = 0; b < room_.size(); ++b) {
      if (room_[b] > 0) most = std::max(most, static_cast<double>(load_[b]) / static_cast<double>(room_[b]));
    }
    return most + static_cast<double>(most_);
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
  // Whether another may need fewer steps.
  const auto attempt = [&](Choice choice) {
    std::optional<std::vector<std::uint32_t>> found = placing.run(choice, deadline);
    if (!found) return true;
    const bool nothing = found->empty();
    if (nothing || !best || std::ranges::max(*found) < std::ranges::max(*best)) best = std::move(found);
    return !nothing && std::ranges::max(*best) + std::size_t{1} > placing.fewest();
  };
  const bool open = std::ranges::all_of(kChoices, attempt);
  if (open && best && std::ranges::max(*best) > (1 + kMuch) * placing.least()) {
    for (const Choice choice : kMixedChoices) attempt(choice);
  }
  return best;
}

}  // namespace gc3::synth
