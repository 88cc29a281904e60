#include "gc3/runtime/select/learner.h"

#include <algorithm>
#include <array>

namespace gc3::select {
namespace {

constexpr std::uint32_t kFirstRest = 8;       // calls before the first look, in which memory is taken and caches fill
constexpr std::uint32_t kShortRest = 32;      // calls between two looks when something is to be tried or confirmed
constexpr std::uint64_t kExchangePart = 200;  // an exchange takes at most 1/200 of the time of the calls before it
constexpr std::uint64_t kCreditCalls = 1000;  // trials may cost their share of so many calls in advance
constexpr std::size_t kLoads = 4;             // that are remembered
constexpr std::uint32_t kStrange = 3;         // looks in a row that are no accident

// A program is out of the race if it is so many per cent slower than the best after each round.
constexpr std::array<std::uint64_t, 5> kOut = {60, 30, 15, 8, 4};
constexpr std::uint64_t kGain = 3;  // per cent that another program than the one in force must be faster

bool differs(std::uint64_t ns, std::uint64_t known) { return ns * 10 > known * 13 || ns * 13 < known * 10; }

}  // namespace

Learner::Learner(std::size_t arms, std::size_t known, std::uint32_t share)
    : share_(share), arms_(arms), settled_(arms < 2) {
  for (std::size_t a = 1; a < arms && known != 0; ++a) arms_[a].out = a != known;
}

bool Learner::may_spend(std::uint64_t ns) const {
  const std::uint64_t all = total_ + kCreditCalls * best_ns_;
  return spent_ + ns <= all / 1'000'000 * share_ + all % 1'000'000 * share_ / 1'000'000;
}

std::uint32_t Learner::rest() const {
  const std::uint64_t calls = exchange_ns_ * kExchangePart / best_ns_;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(calls, kRest, kMostRest));
}

Learner::Leg Learner::next(std::uint32_t ready) {
  const auto leg = [&](std::uint32_t arm, std::uint32_t calls, bool timed) {
    rested_ = !timed;
    calls_ += calls;
    if (!timed) total_ += calls * best_ns_;
    return Leg{arm, calls, timed};
  };
  if (calls_ == 0) return leg(best_, kFirstRest, false);
  if (best_ns_ == 0) return leg(best_, kLook, true);
  if (settled_) {
    if (rested_) return leg(best_, kLook, true);
    return leg(best_, strange_ == 0 ? rest() : kShortRest, false);
  }
  // The round's first leg is that of the program in force, so that all are compared with it at about the same time.
  std::uint32_t chosen = best_;
  bool waits = false;
  if (arms_[best_].looks > round_) {
    for (std::uint32_t a = 0; a < arms_.size(); ++a) {
      const Arm& arm = arms_[a];
      if (arm.excluded || arm.out || arm.looks > round_) continue;
      const bool runs = ((ready >> a) & 1U) != 0;
      waits |= !runs;
      if (runs && chosen == best_) chosen = a;
    }
    if (chosen == best_ && waits) {
      if (rested_) return leg(best_, kLook, true);  // the exchange after it says who is ready
      return leg(best_, kShortRest, false);
    }
  }
  const std::uint64_t known = arms_[chosen].mean();
  const std::uint64_t extra = chosen == best_ ? 0 : known == 0 ? best_ns_ : known > best_ns_ ? known - best_ns_ : 0;
  const std::uint32_t calls = known == 0 && chosen != best_ ? kPeek : kLook;
  if (!may_spend(extra * calls)) return rested_ ? leg(best_, kLook, true) : leg(best_, kRest, false);
  return leg(chosen, calls, true);
}

void Learner::exclude(std::uint32_t arm) {
  arms_[arm].excluded = true;
  for (Load& load : loads_) load.arms[arm].excluded = true;
  if (best_ == arm) lead(0);
  if (!settled_) end_round();
}

void Learner::heard(const Leg& leg, std::uint64_t ns, std::uint64_t exchange_ns) {
  ns = std::max<std::uint64_t>(ns, 1);
  total_ += ns * leg.calls + exchange_ns;
  exchange_ns_ = exchange_ns_ == 0 ? exchange_ns : (3 * exchange_ns_ + exchange_ns) / 4;
  if (best_ns_ != 0) {
    if (!settled_) spent_ += exchange_ns;
    if (leg.arm != best_ && ns > best_ns_) spent_ += (ns - best_ns_) * leg.calls;
  }
  if (!settled_) {
    race(leg, ns);
  } else if (leg.arm == best_) {
    watch(ns);
  }
}

void Learner::race(const Leg& leg, std::uint64_t ns) {
  Arm& arm = arms_[leg.arm];
  if (leg.arm == best_ && arm.looks > round_) {  // not of this round: it only had to be waited for the others
    best_ns_ = (3 * best_ns_ + ns) / 4;
    return;
  }
  ++arm.looks;
  arm.sum += ns;
  if (leg.arm == best_) best_ns_ = arm.mean();
  // It need not wait for the end of the round that a program is faster, or hopeless.
  if (arm.mean() > 2 * best_ns_) arm.out = true;
  if (arm.looks > round_ && arm.mean() * 2 < best_ns_) lead(leg.arm);
  end_round();
}

void Learner::lead(std::uint32_t arm) {
  best_ = arm;
  if (arms_[arm].looks != 0) best_ns_ = arms_[arm].mean();
}

void Learner::end_round() {
  std::uint32_t fastest = best_;
  for (std::uint32_t a = 0; a < arms_.size(); ++a) {
    const Arm& arm = arms_[a];
    if (arm.excluded || arm.out) continue;
    if (arm.looks <= round_) return;
    if (arm.mean() < arms_[fastest].mean()) fastest = a;
  }
  if (arms_[fastest].mean() * (100 + kGain) < arms_[best_].mean() * 100) lead(fastest);
  std::size_t left = 0;
  for (std::uint32_t a = 0; a < arms_.size(); ++a) {
    Arm& arm = arms_[a];
    arm.out |= a != best_ && arm.mean() * 100 > arms_[best_].mean() * (100 + kOut[round_]);
    left += arm.excluded || arm.out ? 0 : 1;
  }
  ++round_;
  settled_ = left < 2 || round_ == kOut.size();
}

void Learner::watch(std::uint64_t ns) {
  if (!differs(ns, best_ns_)) {
    strange_ = 0;
    best_ns_ = (7 * best_ns_ + ns) / 8;
  } else if (++strange_ == kStrange) {
    change_load(ns);
  }
}

void Learner::change_load(std::uint64_t ns) {
  strange_ = 0;
  ++changes_;
  arms_[best_].looks = 1;
  arms_[best_].sum = best_ns_;
  loads_.push_back({arms_, best_});
  // A load under which the program in force took that long is back, if there is one.
  for (std::size_t i = loads_.size() - 1; i-- > 0;) {
    const std::uint64_t known = loads_[i].arms[best_].mean();
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
  settled_ = arms_.size() < 2;
}

}  // namespace gc3::select
