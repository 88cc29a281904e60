#include "gc3/runtime/select/learner.h"

#include <algorithm>
#include <utility>

namespace gc3::select {
namespace {

constexpr std::uint32_t kFirstRest = 8;       // calls before the first look, in which memory is taken and caches fill
constexpr std::uint32_t kShortRest = 32;      // calls between two looks when something is to be tried or confirmed
constexpr std::uint64_t kExchangePart = 400;  // an exchange takes at most 1/400 of the time of the calls before it
constexpr std::uint64_t kClockPart = 400;     // and reading the clock, too
constexpr std::uint64_t kClockNs = 60;        // twice, about a call
constexpr std::uint64_t kCreditCalls = 1000;  // trials may cost their share of so many calls in advance
constexpr std::size_t kLoads = 4;             // that are remembered
constexpr std::uint32_t kStrange = 3;         // looks in a row that are no accident

constexpr std::uint64_t kGain = 3;  // per cent that another program than the one in force must be faster

// A leg in which a call was stopped counts as many as these without, so a crowd is where more than one of four was.
constexpr std::uint32_t kStop = 3;
constexpr std::uint32_t kCrowd = 3 * kStop;       // three that are near to each other: one or two may be accidents
constexpr std::uint32_t kCrowdAgain = 2 * kStop;  // if there was a crowd before
constexpr std::uint32_t kMostStops = 4 * kStop;

// Duels. Without a crowd they are with programs that took at most so many per cent longer than the best one.
constexpr std::uint64_t kNear = 30;
constexpr std::uint64_t kCalmDuelNs = 1'000'000;  // of a leg
// Between two pairs of legs there are so many of the calls so far, since phases in which one program is faster may last
// for any number of calls. So all rivals come about once until there are twice as many calls.
constexpr std::uint64_t kPairPart = 32;
// In a crowd a leg lasts for a few turns that the system gives to threads, which are some milliseconds each.
constexpr std::uint64_t kDuelNs = 10'000'000;
constexpr std::uint64_t kMostCalls = 1000;  // of a leg
constexpr std::int32_t kWon = 5;            // points
constexpr std::int32_t kClearlyWon = 3;     // if it took less than half of the time, too
constexpr std::int32_t kLost = -3;
constexpr std::uint32_t kMostPairs = 16;

bool differs(std::uint64_t ns, std::uint64_t known) { return ns * 10 > known * 13 || ns * 13 < known * 10; }

}  // namespace

void Learner::Arm::add(std::uint64_t ns) {
  if (looks == seen.size()) return;
  seen[looks++] = ns;
  std::ranges::sort(seen.begin(), seen.begin() + looks);
}

Learner::Learner(std::size_t arms, std::size_t known, std::uint32_t share)
    : share_(share), arms_(arms), settled_(arms < 2), crowd_times_(arms) {
  for (std::size_t a = 1; a < arms && known != 0; ++a) arms_[a].out = a != known;
}

bool Learner::may_spend(std::uint64_t ns) const {
  const std::uint64_t all = total_ + kCreditCalls * best_ns_;
  return spent_ + ns <= all / 1'000'000 * share_ + all % 1'000'000 * share_ / 1'000'000;
}

std::uint32_t Learner::period() const {
  const std::uint64_t calls = exchange_ns_ * kExchangePart / best_ns_;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(calls, kPeriod, kMostPeriod));
}

// Those of a period whose times are taken, at its end: all, where a call with what is between calls takes long.
std::uint32_t Learner::timed_calls() const {
  const std::uint64_t calls = period() * between_ns_ / (kClockPart * kClockNs);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(calls, kLook, period()));
}

// How fast a program was at best under another load, in thousandths of the best one's time: the less, the better.
std::uint64_t Learner::promise(std::uint32_t arm) const {
  constexpr std::uint64_t kUnknown = 1500;
  std::uint64_t least = crowd_times_[arm] != 0 ? crowd_times_[arm] : kUnknown;
  const auto add = [&](const std::vector<Arm>& arms, std::uint32_t best) {
    if (arms[arm].looks == 0 || arms[best].looks == 0) return;
    const std::uint64_t ratio = 1000 * arms[arm].time() / arms[best].time();
    least = least == kUnknown ? ratio : std::min(least, ratio);
  };
  for (const Load& load : loads_) add(load.arms, load.best);
  if (crowded_) add(arms_, calm_best_);
  return least;
}

Learner::Leg Learner::leg(std::uint32_t arm, std::uint32_t calls, bool timed) {
  rested_ = !timed;
  calls_ += calls;
  if (!timed) total_ += calls * best_ns_;
  return Leg{arm, calls, timed};
}

Learner::Leg Learner::next(std::uint32_t ready) {
  if (calls_ == 0) return leg(best_, kFirstRest, false);
  if (best_ns_ == 0) return leg(best_, kLook, true);
  if (!settled_ && !crowded_) return next_in_race(ready);
  if (!crowded_ && strange_ != 0 && stops_ == 0)
    return rested_ ? leg(best_, kLook, true) : leg(best_, kShortRest, false);
  if (!crowded_ && calls_ >= next_pair_ && rivals_.empty()) challenge();
  const bool waits = !crowded_ && (calls_ < next_pair_ || stops_ != 0);
  return rivals_.empty() || waits ? watched() : next_in_duel(ready);
}

// When nothing is to be tried.
Learner::Leg Learner::watched() {
  own_ns_ = 0;
  const std::uint32_t timed = stops_ == 0 ? timed_calls() : period();
  if (rested_ || timed == period()) return leg(best_, timed, true);
  return leg(best_, period() - timed, false);
}

Learner::Leg Learner::next_in_race(std::uint32_t ready) {
  // The round's first leg is that of the program in force, so that all are compared with it at about the same time.
  std::uint32_t chosen = best_;
  bool waits = false;
  if (arms_[best_].looks > round_) {
    for (std::uint32_t a = 0; a < arms_.size(); ++a) {
      const Arm& arm = arms_[a];
      if (arm.excluded || arm.out || arm.looks > round_) continue;
      const bool runs = ((ready >> a) & 1U) != 0;
      waits |= !runs;
      if (runs && (chosen == best_ || promise(a) < promise(chosen))) chosen = a;
    }
    if (chosen == best_ && waits) {
      if (rested_) return leg(best_, kLook, true);  // the exchange after it says who is ready
      return leg(best_, kShortRest, false);
    }
  }
  const std::uint64_t known = arms_[chosen].time();
  const std::uint64_t extra = chosen == best_ ? 0 : known == 0 ? best_ns_ : known > best_ns_ ? known - best_ns_ : 0;
  const std::uint32_t calls = known == 0 && chosen != best_ ? kPeek : kLook;
  if (!may_spend(extra * calls)) return watched();
  return leg(chosen, calls, true);
}

void Learner::exclude(std::uint32_t arm) {
  arms_[arm].excluded = true;
  for (Load& load : loads_) load.arms[arm].excluded = true;
  if (!rivals_.empty() && rivals_.front() == arm) duel_ = {};
  std::erase(rivals_, arm);
  if (calm_best_ == arm) calm_best_ = 0;
  if (crowd_best_ == arm) crowd_best_ = kMostArms;
  if (best_ == arm) lead(0);
  if (!settled_ && !crowded_) end_round();
}

std::vector<std::uint32_t> Learner::lessons() const {
  std::vector<std::uint32_t> found{best_};
  const auto add = [&](std::uint32_t arm) {
    if (arm < arms_.size() && std::ranges::find(found, arm) == found.end()) found.push_back(arm);
  };
  if (crowded_) add(calm_best_);
  add(crowd_best_);
  for (std::size_t i = loads_.size(); i-- > 0;) add(loads_[i].best);
  return found;
}

void Learner::heard(const Leg& leg, const Times& times) {
  total_ += times.mean * leg.calls + times.exchange;
  exchange_ns_ = exchange_ns_ == 0 ? times.exchange : (3 * exchange_ns_ + times.exchange) / 4;
  between_ns_ = times.between;
  if (!settled_ && !crowded_) {
    if (best_ns_ != 0) {
      spent_ += times.exchange;
      if (leg.arm != best_ && times.usual > best_ns_) spent_ += (times.usual - best_ns_) * leg.calls;
    }
    race(leg, times);
  } else if (leg.arm != best_) {
    if (!rivals_.empty() && rivals_.front() == leg.arm) duel(leg, times);
  } else {
    const bool compares = leg.calls >= duel_.calls && duel_.calls != 0 && (crowded_ || !times.stopped);
    own_ns_ = compares ? std::max<std::uint64_t>(times.mean, 1) : 0;
    crowded_ ? watch_crowd(times) : watch(times);
  }
}

void Learner::race(const Leg& leg, const Times& times) {
  const std::uint64_t ns = std::max<std::uint64_t>(times.usual, 1);
  Arm& arm = arms_[leg.arm];
  if (leg.arm == best_ && arm.looks > round_) {  // not of this round: it only had to be waited for the others
    best_ns_ = (3 * best_ns_ + ns) / 4;
    if (leg.calls > kLook && meets_crowd(times.stopped)) enter_crowd(times.mean);
    return;
  }
  arm.add(ns);
  if (leg.arm == best_) best_ns_ = arm.time();
  // It need not wait for the end of the round that a program is faster, or hopeless.
  if (arm.time() > 2 * best_ns_) arm.out = true;
  if (arm.looks > round_ && arm.time() * 2 < best_ns_) lead(leg.arm);
  end_round();
}

void Learner::lead(std::uint32_t arm) {
  best_ = arm;
  if (arms_[arm].looks != 0) best_ns_ = arms_[arm].time();
}

void Learner::end_round() {
  std::uint32_t fastest = best_;
  for (std::uint32_t a = 0; a < arms_.size(); ++a) {
    const Arm& arm = arms_[a];
    if (arm.excluded || arm.out) continue;
    if (arm.looks <= round_) return;
    if (arm.time() < arms_[fastest].time()) fastest = a;
  }
  if (arms_[fastest].time() * (100 + kGain) < arms_[best_].time() * 100) lead(fastest);
  std::size_t left = 0;
  for (std::uint32_t a = 0; a < arms_.size(); ++a) {
    Arm& arm = arms_[a];
    arm.out |= a != best_ && arm.time() * 100 > arms_[best_].time() * (100 + kOut[round_]);
    left += arm.excluded || arm.out ? 0 : 1;
  }
  ++round_;
  settled_ = left < 2 || round_ == kOut.size();
}

void Learner::watch(const Times& times) {
  if (meets_crowd(times.stopped)) return enter_crowd(times.mean);
  if (!differs(times.usual, best_ns_)) {
    strange_ = 0;
    best_ns_ = std::max<std::uint64_t>((7 * best_ns_ + times.usual) / 8, 1);
  } else if (++strange_ >= kStrange && stops_ == 0) {
    change_load(std::max<std::uint64_t>(times.usual, 1));
  }
}

void Learner::change_load(std::uint64_t ns) {
  strange_ = 0;
  ++changes_;
  rivals_.clear();
  duel_ = {};
  arms_[best_] = {};
  arms_[best_].add(best_ns_);
  loads_.push_back({arms_, best_});
  // A load under which the program in force took that long is back, if there is one.
  for (std::size_t i = loads_.size() - 1; i-- > 0;) {
    const std::uint64_t known = loads_[i].arms[best_].time();
    if (known == 0 || differs(ns, known)) continue;
    arms_ = loads_[i].arms;
    lead(loads_[i].best);
    loads_.erase(loads_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
  if (loads_.size() > kLoads) loads_.erase(loads_.begin());
  for (Arm& arm : arms_) arm = {arm.excluded};
  best_ns_ = ns;
  round_ = 0;
  next_pair_ = 0;
  settled_ = arms_.size() < 2;
}

// Counts a leg of the program in force. Whether its calls are stopped often.
bool Learner::meets_crowd(bool stopped) {
  if (stopped) {
    stops_ = std::min(stops_ + kStop, kMostStops);
  } else if (stops_ != 0) {
    --stops_;
  }
  return stops_ >= (crowd_best_ < kMostArms ? kCrowdAgain : kCrowd);
}

void Learner::enter_crowd(std::uint64_t mean) {
  crowded_ = true;
  ++changes_;
  strange_ = 0;
  calm_best_ = best_;
  calm_ns_ = best_ns_;
  best_ns_ = std::max<std::uint64_t>(mean, 1);
  if (crowd_best_ < kMostArms) best_ = crowd_best_;
  rivals_.clear();
  for (std::uint32_t a = 0; a < arms_.size(); ++a) {
    if (a != best_ && !arms_[a].excluded) rivals_.push_back(a);
  }
  std::ranges::stable_sort(rivals_, {}, [&](std::uint32_t arm) { return promise(arm); });
  duel_ = {};
  own_ns_ = 0;
}

void Learner::leave_crowd() {
  crowded_ = false;
  ++changes_;
  best_ = calm_best_;
  best_ns_ = calm_ns_;
  rivals_.clear();
  duel_ = {};
  if (!settled_) end_round();  // programs may have been excluded
}

// The programs that may be faster than the race has shown.
void Learner::challenge() {
  const std::uint64_t most = arms_[best_].time() * (100 + kNear) / 100;
  for (std::uint32_t a = 0; a < arms_.size(); ++a) {
    const std::uint64_t ns = arms_[a].time();
    if (a != best_ && !arms_[a].excluded && ns != 0 && ns <= most) rivals_.push_back(a);
  }
  std::ranges::stable_sort(rivals_, {}, [&](std::uint32_t arm) { return arms_[arm].time(); });
  duel_ = {};
}

Learner::Leg Learner::next_in_duel(std::uint32_t ready) {
  if (duel_.pairs == 0 && !duel_.peeked) {
    const auto runs = [&](std::uint32_t arm) { return ((ready >> arm) & 1U) != 0; };
    const auto at = std::ranges::find_if(rivals_, runs);
    if (at != rivals_.end()) std::rotate(rivals_.begin(), at, at + 1);
    const std::uint64_t calls = (crowded_ ? kDuelNs : kCalmDuelNs) / best_ns_;
    duel_.calls = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(calls, kLook, kMostCalls));
    if (at == rivals_.end()) return crowded_ ? leg(best_, duel_.calls, true) : watched();
  }
  const bool peeks = crowded_ && !duel_.peeked;  // without a crowd it is known how long it takes, about
  const std::uint64_t worse = duel_.others > duel_.own ? (duel_.others - duel_.own) / duel_.pairs : 0;
  const std::uint64_t extra = peeks ? best_ns_ * kPeek : worse;
  // Half of what trials may cost is left to races and crowds, where there is more to win.
  const std::uint64_t reserve = crowded_ ? 0 : spent_;
  if (!may_spend(reserve + extra + duel_overhead())) return crowded_ ? leg(best_, duel_.calls, true) : watched();
  if (own_ns_ == 0) return leg(best_, duel_.calls, true);
  return leg(rivals_.front(), peeks ? kPeek : duel_.calls, true);
}

// What a pair of legs costs if both programs are equal. In a crowd the calls of the program in force are timed anyway.
std::uint64_t Learner::duel_overhead() const {
  return crowded_ ? duel_.calls * kClockNs : 2 * (duel_.calls * kClockNs + exchange_ns_);
}

void Learner::watch_crowd(const Times& times) {
  best_ns_ = std::max<std::uint64_t>((7 * best_ns_ + times.mean) / 8, 1);
  meets_crowd(times.stopped);
  if (stops_ == 0) leave_crowd();
}

void Learner::duel(const Leg& leg, const Times& times) {
  const std::uint64_t mean = std::max<std::uint64_t>(times.mean, 1);
  if (leg.calls < duel_.calls) {
    duel_.peeked = true;
    if (times.usual <= best_ns_) return;
    spent_ += (times.usual - best_ns_) * leg.calls;
    // Its calls take longer without a stop than those of the other one with stops.
    if (times.usual > 2 * best_ns_) end_duel(false);
    return;
  }
  ++duel_.pairs;
  // Without a crowd a stop is an accident, which says nothing of the program.
  if (crowded_ || !times.stopped) {
    duel_.own += own_ns_ * leg.calls;
    duel_.others += mean * leg.calls;
    duel_.points += mean < own_ns_ ? 1 : mean > 2 * own_ns_ ? -2 : -1;
  }
  own_ns_ = 0;
  next_pair_ = calls_ + calls_ / kPairPart;
  // All legs of it together, since single ones depend on luck.
  const std::uint64_t cost = duel_.others > duel_.own ? duel_.others - duel_.own : 0;
  spent_ = spent_ + cost + duel_overhead() - std::exchange(duel_.cost, cost);
  const bool clearly = duel_.points >= kClearlyWon && duel_.others * 2 < duel_.own;
  if (clearly || (duel_.points >= kWon && duel_.others * (100 + kGain) < duel_.own * 100)) {
    end_duel(true);
  } else if (duel_.points <= kLost || duel_.pairs == kMostPairs) {
    end_duel(false);
  }
}

void Learner::end_duel(bool won) {
  const std::uint32_t rival = rivals_.front();
  rivals_.erase(rivals_.begin());
  if (crowded_) {
    crowd_times_[rival] = duel_.own == 0 ? 2000 : 1000 * duel_.others / duel_.own;
    if (won) {
      crowd_times_[best_] = 1000 * duel_.own / duel_.others;
      crowd_times_[rival] = 1000;
      best_ = rival;
      if (stops_ >= kCrowd) crowd_best_ = rival;  // else this may have been no crowd, or is over
      best_ns_ = std::max<std::uint64_t>(duel_.others / duel_.pairs / duel_.calls, 1);
    }
  } else {
    arms_[best_] = {};
    arms_[best_].add(best_ns_);
    if (duel_.own != 0) {
      arms_[rival] = {};
      arms_[rival].add(std::max<std::uint64_t>(best_ns_ * duel_.others / duel_.own, 1));
    }
    if (won) lead(rival);
  }
  duel_ = {};
  own_ns_ = 0;
}

}  // namespace gc3::select
