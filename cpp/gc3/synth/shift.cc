#include "gc3/synth/shift.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace gc3::synth {
namespace {

constexpr std::uint32_t kOut = std::numeric_limits<std::uint32_t>::max();  // the step of a hop that has none
constexpr std::uint64_t kInTheWay = 3;         // what a hop in the way costs, beside how often it was
constexpr std::uint64_t kMostCells = 1 << 21;  // steps of bounds

constexpr std::uint32_t kOften = 1024;  // hops between looks at the clock

using Clock = std::chrono::steady_clock;

class Shifting {
 public:
  Shifting(const Work& work, const Rooms& rooms, std::uint32_t steps)
      : work_(work),
        rooms_(rooms),
        steps_(steps),
        step_(work.hops.size(), kOut),
        moved_(work.hops.size()),
        cells_(work.load.size() * steps) {
    for (const Hop& hop : work.hops) {
      first_.push_back(places_.size());
      places_.resize(places_.size() + work.loads[hop.edge].size());
    }
  }

  std::optional<std::vector<std::uint32_t>> run(const std::vector<std::uint32_t>& from, std::int64_t& effort,
                                                Clock::time_point deadline) {
    for (std::uint32_t i = 0; i < from.size(); ++i) {
      if (from[i] + work_.tail[i] < steps_) {
        enter(i, from[i]);
      } else {
        out_.push_back(i);
      }
    }
    for (std::uint32_t count = 0; !out_.empty(); ++count) {
      if (effort <= 0 || (count % kOften == 0 && Clock::now() > deadline)) return std::nullopt;
      const std::uint32_t i = out_.front();
      out_.pop_front();
      const std::uint32_t step = cheapest(i, effort);
      if (step == kOut) return std::nullopt;
      make_way(i, step);
      enter(i, step);
      ++moved_[i];
    }
    return std::move(step_);
  }

 private:
  struct Inside {  // a hop in a cell, and which of its bounds this is
    std::uint32_t hop = 0;
    std::uint32_t which = 0;
  };
  struct Cell {  // a bound in a step
    std::vector<Inside> hops;
    Amount used = 0;
    std::uint32_t changed = 0;  // how often a hop was taken out
  };

  Cell& cell(std::uint32_t bound, std::uint32_t step) { return cells_[(std::size_t{bound} * steps_) + step]; }

  std::uint64_t random() {
    random_ ^= random_ << 13U;
    random_ ^= random_ >> 7U;
    random_ ^= random_ << 17U;
    return random_;
  }

  // The step in which the fewest hops are in the way of a hop.
  std::uint32_t cheapest(std::uint32_t i, std::int64_t& effort) {
    const std::uint32_t first = work_.head[i];
    const std::uint32_t count = steps_ - work_.tail[i] - first;
    const auto begin = static_cast<std::uint32_t>(random() % count);
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    std::uint32_t best = kOut;
    for (std::uint32_t k = 0; k < count && least > 0; ++k) {
      const std::uint32_t step = first + ((begin + k) % count);
      const std::uint64_t cost = cost_of(i, step, least);
      --effort;
      if (cost >= least) continue;
      least = cost;
      best = step;
    }
    return best;
  }

  // What it costs to place a hop in a step; any number from `most` on if it is no less.
  std::uint64_t cost_of(std::uint32_t i, std::uint32_t step, std::uint64_t most) {
    std::uint64_t cost = 0;
    for (const std::uint32_t before : work_.hops[i].before) {
      if (step_[before] != kOut && step_[before] >= step) cost += kInTheWay + moved_[before];
    }
    for (const std::uint32_t next : work_.after[i]) {
      if (step_[next] <= step) cost += kInTheWay + moved_[next];
    }
    const std::vector<Amount>& room = rooms_.at(step);
    for (const auto& [bound, times] : work_.loads[work_.hops[i].edge]) {
      if (cost >= most) break;
      const Cell& at = cell(bound, step);
      if (times > room[bound]) return std::numeric_limits<std::uint64_t>::max();
      if (at.used + times > room[bound]) cost += kInTheWay + at.changed;
    }
    return cost;
  }

  // Takes out what is in the way.
  void make_way(std::uint32_t i, std::uint32_t step) {
    for (const std::uint32_t before : work_.hops[i].before) {
      if (step_[before] != kOut && step_[before] >= step) take_out(before);
    }
    for (const std::uint32_t next : work_.after[i]) {
      if (step_[next] != kOut && step_[next] <= step) take_out(next);
    }
    for (const auto& [bound, times] : work_.loads[work_.hops[i].edge]) {
      Cell& at = cell(bound, step);
      while (at.used + times > rooms_.at(step)[bound]) {
        ++at.changed;
        take_out(at.hops[random() % at.hops.size()].hop);
      }
    }
  }

  void enter(std::uint32_t i, std::uint32_t step) {
    step_[i] = step;
    const std::vector<Load>& loads = work_.loads[work_.hops[i].edge];
    for (std::uint32_t k = 0; k < loads.size(); ++k) {
      Cell& at = cell(loads[k].bound, step);
      places_[first_[i] + k] = static_cast<std::uint32_t>(at.hops.size());
      at.hops.push_back({i, k});
      at.used += loads[k].times;
    }
  }

  void take_out(std::uint32_t i) {
    const std::vector<Load>& loads = work_.loads[work_.hops[i].edge];
    for (std::uint32_t k = 0; k < loads.size(); ++k) {
      Cell& at = cell(loads[k].bound, step_[i]);
      const std::uint32_t place = places_[first_[i] + k];
      const Inside last = at.hops.back();
      at.hops[place] = last;
      places_[first_[last.hop] + last.which] = place;
      at.hops.pop_back();
      at.used -= loads[k].times;
    }
    step_[i] = kOut;
    out_.push_back(i);
  }

  const Work& work_;
  const Rooms& rooms_;
  std::uint32_t steps_;
  std::vector<std::uint32_t> step_;
  std::vector<std::uint32_t> moved_;  // how often each hop entered a step
  std::vector<Cell> cells_;
  std::vector<std::size_t> first_;     // of each hop, in `places_`
  std::vector<std::uint32_t> places_;  // of each hop in its cells
  std::deque<std::uint32_t> out_;
  std::uint64_t random_ = 0x9E3779B97F4A7C15U;
};

}  // namespace

std::optional<std::vector<std::uint32_t>> shifted(const Work& work, const Rooms& rooms,
                                                  const std::vector<std::uint32_t>& from, std::uint32_t steps,
                                                  std::int64_t& effort,
                                                  std::chrono::steady_clock::time_point deadline) {
  if (steps < work.depth || work.load.size() * steps > kMostCells) return std::nullopt;
  return Shifting(work, rooms, steps).run(from, effort, deadline);
}

}  // namespace gc3::synth
