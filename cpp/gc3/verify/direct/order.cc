#include "gc3/verify/direct/order.h"

#include <algorithm>
#include <tuple>

#include "gc3/base/interrupt.h"

namespace gc3::verify::direct {
namespace {

auto of_events(const Order::Pair& p) { return std::tuple(p.earlier, p.later); }

}  // namespace

std::vector<Order::Race> Order::races(std::size_t limit) {
  // The strictest demand of two events first.
  std::ranges::sort(pairs_, {},
                    [](const Pair& p) { return std::tuple(p.earlier, p.later, p.done_only, p.place, p.stores); });
  const auto repeats =
      std::ranges::unique(pairs_, [](const Pair& a, const Pair& b) { return of_events(a) == of_events(b); });
  pairs_.erase(repeats.begin(), repeats.end());
  std::vector<Race> found;
  constexpr std::size_t kBits = 64;
  for (std::size_t first = 0; first < pairs_.size() && found.size() < limit;) {
    std::size_t end = first;
    for (std::size_t sources = 0; end < pairs_.size(); ++end) {
      if (end == first || pairs_[end].earlier != pairs_[end - 1].earlier) ++sources;
      if (sources > kBits) break;
    }
    judge(std::span(pairs_).subspan(first, end - first), found);
    first = end;
  }
  if (found.size() > limit) found.resize(limit);
  return found;
}

// One pass over the events with a bit for each of at most 64 first events.
void Order::judge(std::span<const Pair> pairs, std::vector<Race>& found) {
  const Event first = pairs.front().earlier;
  const Event last = std::ranges::max(pairs, {}, &Pair::later).later;
  struct Reached {
    std::uint64_t visible = 0;
    std::uint64_t done = 0;
  };
  std::vector<Reached> reached(last - first + 1);
  std::uint64_t bit = 1;
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    if (k > 0 && pairs[k].earlier != pairs[k - 1].earlier) bit <<= 1U;
    reached[pairs[k].earlier - first] = {bit, bit};
  }
  Breath breathe;
  for (Event e = first + 1; e <= last; ++e) {
    breathe();
    Reached& here = reached[e - first];
    const std::size_t end = e + 1 < first_.size() ? first_[e + 1] : edges_.size();
    for (std::size_t k = first_[e]; k < end; ++k) {
      const Event before = edges_[k] & ~kDoneOnly;
      if (before < first) continue;
      here.done |= reached[before - first].done;
      if ((edges_[k] & kDoneOnly) == 0) here.visible |= reached[before - first].visible;
    }
  }
  bit = 1;
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    if (k > 0 && pairs[k].earlier != pairs[k - 1].earlier) bit <<= 1U;
    const Reached& there = reached[pairs[k].later - first];
    const bool done = (there.done & bit) != 0;
    const bool ordered = pairs[k].done_only ? done : (there.visible & bit) != 0;
    if (!ordered && first_of_steps(pairs[k])) found.push_back({pairs[k], done});
  }
}

}  // namespace gc3::verify::direct
