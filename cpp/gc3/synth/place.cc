#include "gc3/synth/place.h"

#include <algorithm>
#include <array>
#include <queue>
#include <tuple>

#include "gc3/synth/deadline.h"
#include "gc3/synth/lengths.h"
#include "gc3/synth/shift.h"

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

constexpr std::int64_t kEffort = 30'000'000;  // to save steps: about a second
constexpr std::int64_t kShare = 3;            // of it for each number of steps
constexpr std::int64_t kTries = 3'000;      // of each hop in a step: few hops that do not fit by then do not fit at all
constexpr std::size_t kTried = 3;           // lengths of steps
constexpr std::size_t kManyHops = 100'000;  // for which only the best lengths are tried

// The smaller one goes first: a number from the order of preference, then the hop.
using Waiting = std::pair<std::uint64_t, std::uint32_t>;
using Queue = std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>>;

// Sends in order: a hop takes place as soon as its data has arrived and there is room.
class Placing {
 public:
  Placing(const Work& work, const Rooms& rooms) : work_(work), rooms_(rooms) {}

  std::optional<std::vector<std::uint32_t>> run(Choice choice, Deadline deadline) const {
    const std::vector<Hop>& hops = work_.hops;
    std::vector<std::uint32_t> step(hops.size());
    std::vector<Queue> ready(work_.loads.size());
    std::vector<std::uint32_t> active;  // edges with waiting hops
    const auto enter = [&](std::uint32_t i) {
      if (ready[hops[i].edge].empty()) active.push_back(hops[i].edge);
      ready[hops[i].edge].emplace(hops[i].turn + (choice.lead * (work_.depth - 1 - work_.tail[i])), i);
    };
    std::vector<std::size_t> missing(hops.size());  // hops before it that have not taken place
    for (std::uint32_t i = 0; i < hops.size(); ++i) {
      missing[i] = hops[i].before.size();
      if (missing[i] == 0) enter(i);
    }
    std::size_t placed = 0;
    std::vector<Amount> left;
    std::vector<std::uint32_t> sent;
    std::vector<Amount> load = work_.load;  // that hops without a step put on each bound
    const auto urgency = [&](std::uint32_t e, std::uint32_t now) {
      if (choice.first == First::kDue) return Amount{0};
      const std::vector<Amount>& room = rooms_.at(now);
      Amount most = 0;
      Amount sum = 0;
      for (const auto& [b, times] : work_.loads[e]) {
        if (choice.first == First::kAny || room[b] <= 0) continue;
        most = std::max(most, kScale * load[b] / room[b]);
        sum += kScale * load[b] / room[b];
      }
      return choice.first == First::kFullest ? -most : static_cast<Amount>(mixed(e, now)) - (sum * kMixed);
    };
    for (std::uint32_t now = 0; placed < hops.size(); ++now) {
      if (Clock::now() > deadline) return std::nullopt;
      left = rooms_.at(now);
      sent.clear();
      using Front = std::tuple<Amount, Waiting, std::uint32_t>;
      std::priority_queue<Front, std::vector<Front>, std::greater<>> first;  // of each edge
      for (const std::uint32_t e : active) first.emplace(urgency(e, now), ready[e].top(), e);
      while (!first.empty()) {
        const std::uint32_t e = std::get<2>(first.top());
        first.pop();
        if (std::ranges::any_of(work_.loads[e], [&](const Load& each) { return left[each.bound] < each.times; })) {
          continue;
        }
        for (const auto& [b, times] : work_.loads[e]) {
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
        for (const std::uint32_t next : work_.after[i]) {
          if (--missing[next] == 0) enter(next);
        }
      }
    }
    return step;
  }

 private:
  const Work& work_;
  const Rooms& rooms_;
};

std::uint32_t steps_of(const std::vector<std::uint32_t>& step) { return step.empty() ? 0 : std::ranges::max(step) + 1; }

// The best schedule with steps of these lengths.
std::optional<std::vector<std::uint32_t>> place(const Work& work, const Rooms& rooms, std::uint64_t fewest,
                                                std::int64_t& effort, Deadline deadline) {
  const Placing placing(work, rooms);
  std::optional<std::vector<std::uint32_t>> best;
  // Whether another may need fewer steps.
  const auto attempt = [&](Choice choice) {
    std::optional<std::vector<std::uint32_t>> found = placing.run(choice, deadline);
    if (found && (!best || steps_of(*found) < steps_of(*best))) best = std::move(found);
    return !best || steps_of(*best) > fewest;
  };
  if (!std::ranges::all_of(kChoices, attempt) || !best) return best;
  if (steps_of(*best) > (1 + kMuch) * static_cast<double>(fewest)) {
    for (const Choice choice : kMixedChoices) attempt(choice);
  }
  for (std::uint64_t low = fewest; low < steps_of(*best) && effort > 0 && Clock::now() < deadline;) {
    std::int64_t share = effort / kShare;
    effort -= share;
    auto found = shifted(work, rooms, *best, static_cast<std::uint32_t>(low), share, deadline);
    effort += share;
    if (found) {
      best = std::move(found);
      break;
    }
    low = std::max(low + 1, (low + steps_of(*best)) / 2);
  }
  return best;
}

}  // namespace

std::optional<Placed> place_hops(const std::vector<Hop>& hops, const std::vector<std::vector<std::uint32_t>>& bounds_of,
                                 const std::vector<Bandwidth>& bandwidths, std::uint32_t rounds, bool moving,
                                 double seconds) {
  const Deadline deadline = deadline_in(seconds);
  const Work work(hops, bounds_of, bandwidths);
  for (std::size_t b = 0; b < work.load.size(); ++b) {
    if (work.load[b] > 0 && bandwidths[b].chunks <= 0) return std::nullopt;
  }
  const Fewest fewest(work);
  std::vector<Lengths> lengths = rounds > 0 ? std::vector<Lengths>{{rounds, rounds, 0, 0}} : lengths_for(work, fewest);
  std::int64_t effort = moving ? kEffort : 0;
  lengths.resize(std::min(lengths.size(), hops.size() > kManyHops ? 1 : kTried));
  std::optional<Placed> best;
  std::uint64_t least = 0;  // rounds of the best
  for (const Lengths& each : lengths) {
    const Rooms rooms(bandwidths, each);
    const std::uint64_t steps = fewest.steps(rooms);
    if (best && each.total(steps) >= least) continue;
    std::int64_t given = std::min(effort, kTries * static_cast<std::int64_t>(hops.size() * steps));
    effort -= given;
    auto found = place(work, rooms, steps, given, deadline);
    effort += given;
    if (!found || (best && each.total(steps_of(*found)) >= least)) continue;
    least = each.total(steps_of(*found));
    best = Placed{{}, std::move(*found)};
    for (std::uint32_t step = 0; step < steps_of(best->step); ++step) best->rounds.push_back(each.of(step));
  }
  return best;
}

}  // namespace gc3::synth
