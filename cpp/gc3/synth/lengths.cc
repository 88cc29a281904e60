#include "gc3/synth/lengths.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace gc3::synth {
namespace {

constexpr std::uint32_t kMostRounds = 64;      // of a step
constexpr std::size_t kFewBrief = 4;           // lengths of brief steps to try beside longer ones
constexpr std::uint32_t kMostFirst = 16;       // brief steps before the longer ones
constexpr std::uint32_t kManySteps = 2;        // for each hop of a way, so that there is room for most of them
constexpr double kWait = 1.0 / 16;             // of the time of a way in longer steps, that costs rounds
constexpr std::uint64_t kManyNeeds = 1 << 22;  // all of which take too long to compute

std::vector<Amount> carried(const std::vector<Bandwidth>& bandwidths, std::uint32_t rounds) {
  std::vector<Amount> room;
  room.reserve(bandwidths.size());
  for (const auto& [chunks, per] : bandwidths) room.push_back(chunks * rounds / per);
  return room;
}

}  // namespace

Work::Work(const std::vector<Hop>& hops_, const std::vector<std::vector<std::uint32_t>>& bounds_of,
           const std::vector<Bandwidth>& bandwidths_)
    : hops(hops_),
      bandwidths(bandwidths_),
      loads(loads_of(bounds_of)),
      load(bandwidths_.size()),
      largest(bandwidths_.size()),
      after(hops_.size()),
      head(hops_.size()),
      tail(hops_.size()) {
  for (std::uint32_t i = 0; i < hops.size(); ++i) {
    for (const auto& [bound, times] : loads[hops[i].edge]) {
      load[bound] += times;
      largest[bound] = std::max(largest[bound], times);
    }
    for (const std::uint32_t before : hops[i].before) {
      after[before].push_back(i);
      head[i] = std::max(head[i], head[before] + 1);
    }
    depth = std::max(depth, head[i] + 1);
  }
  for (std::size_t i = hops.size(); i-- > 0;) {
    for (const std::uint32_t next : after[i]) tail[i] = std::max(tail[i], tail[next] + 1);
  }
}

std::uint64_t Lengths::total(std::uint64_t steps) const {
  const std::uint64_t longer = std::min<std::uint64_t>(steps > first ? steps - first : 0, many);
  return ((steps - longer) * brief) + (longer * full);
}

Rooms::Rooms(const std::vector<Bandwidth>& bandwidths, Lengths lengths)
    : lengths_(lengths), brief_(carried(bandwidths, lengths.brief)), full_(carried(bandwidths, lengths.full)) {}

std::uint64_t Rooms::end(std::uint32_t bound, std::uint64_t begin, Amount amount) const {
  const std::uint64_t last = std::uint64_t{lengths_.first} + lengths_.many;
  const auto need = [&](Amount each) { return static_cast<std::uint64_t>((amount + each - 1) / each); };
  for (const auto& [until, each] : {std::pair(std::uint64_t{lengths_.first}, brief_[bound]), {last, full_[bound]}}) {
    if (begin >= until) continue;
    if (each > 0 && need(each) <= until - begin) return begin + need(each);
    amount -= each * static_cast<Amount>(until - begin);
    begin = until;
  }
  return begin + need(brief_[bound]);
}

Fewest::Fewest(const Work& work) : depth_(work.depth) {
  std::vector<std::map<std::pair<std::uint32_t, std::uint32_t>, Amount>> ends(work.load.size());
  for (std::size_t i = 0; i < work.hops.size(); ++i) {
    for (const auto& [b, times] : work.loads[work.hops[i].edge]) ends[b][{work.head[i], work.tail[i]}] += times;
  }
  std::set<std::tuple<Amount, Amount, std::uint32_t, std::uint32_t, Amount>> known;  // symmetric bounds need the same
  std::uint64_t effort = 0;
  for (std::uint32_t b = 0; b < ends.size(); ++b) {
    std::set<std::uint32_t> heads;
    std::set<std::uint32_t> tails;
    for (const auto& [at, amount] : ends[b]) {
      heads.insert(at.first);
      tails.insert(at.second);
    }
    effort += heads.size() * tails.size() * ends[b].size();
    if (effort > kManyNeeds && !heads.empty()) {  // the whole load is what matters most
      heads = {*heads.begin()};
      tails = {*tails.begin()};
    }
    for (const std::uint32_t head : heads) {
      for (const std::uint32_t tail : tails) {
        Amount load = 0;
        for (const auto& [at, amount] : ends[b]) load += at.first >= head && at.second >= tail ? amount : 0;
        const Bandwidth& width = work.bandwidths[b];
        if (load > 0 && known.emplace(width.chunks, width.rounds, head, tail, load).second) {
          needs_.push_back({b, head, tail, load});
        }
      }
    }
  }
}

std::uint64_t Fewest::steps(const Rooms& rooms) const {
  std::uint64_t most = depth_;
  for (const auto& [bound, head, tail, load] : needs_) most = std::max(most, rooms.end(bound, head, load) + tail);
  return most;
}

std::vector<Lengths> lengths_for(const Work& work, const Fewest& fewest) {
  const auto fits = [&](std::uint32_t rounds) {
    const std::vector<Amount> room = carried(work.bandwidths, rounds);
    for (std::size_t b = 0; b < room.size(); ++b) {
      if (room[b] < work.largest[b]) return false;
    }
    return true;
  };
  const bool whole = std::ranges::all_of(work.bandwidths, [](const Bandwidth& each) { return each.rounds == 1; });
  if (whole && fits(1)) return {{}};
  struct Ranked {
    double rounds = 0;
    std::uint64_t steps = 0;
    Lengths lengths;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Ranked> ranked;  // the best of each pair of lengths
  const auto add = [&](Lengths lengths) {
    const std::uint64_t steps = fewest.steps(Rooms(work.bandwidths, lengths));
    const Ranked made{static_cast<double>(lengths.total(steps)) + (kWait * lengths.full * work.depth), steps, lengths};
    const auto [at, added] = ranked.try_emplace({lengths.brief, lengths.full}, made);
    if (!added && made.rounds < at->second.rounds) at->second = made;
  };
  std::vector<std::uint32_t> usable;  // lengths of steps in which every hop has room
  for (std::uint32_t rounds = 1; rounds <= kMostRounds || usable.empty(); ++rounds) {
    if (fits(rounds)) usable.push_back(rounds);
  }
  for (const std::uint32_t rounds : usable) add({rounds, rounds, 0, 0});
  for (std::size_t i = 0; i < std::min(kFewBrief, usable.size()); ++i) {
    for (std::size_t k = i + 1; k < usable.size(); ++k) {
      const Lengths endless{usable[k], usable[k], 0, 0};
      const std::uint64_t steps = fewest.steps(Rooms(work.bandwidths, endless));
      if (steps < std::uint64_t{kManySteps} * work.depth) continue;
      for (std::uint32_t first = 0; first <= std::min(work.depth, kMostFirst); first = first == 0 ? 1 : 2 * first) {
        for (std::uint64_t less = 1; less < std::min<std::uint64_t>(steps, 4); ++less) {
          add({usable[i], usable[k], first, static_cast<std::uint32_t>(steps - less)});
        }
      }
    }
  }
  std::vector<Ranked> found;
  for (const auto& [rounds, each] : ranked) found.push_back(each);
  std::ranges::stable_sort(found, {}, [](const Ranked& each) { return std::pair(each.rounds, each.steps); });
  std::vector<Lengths> lengths;
  lengths.reserve(found.size());
  for (const Ranked& each : found) lengths.push_back(each.lengths);
  return lengths;
}

}  // namespace gc3::synth
