#include "gc3/runtime/select/learner.h"

#include <algorithm>
#include <utility>

namespace gc3::select {
namespace {

constexpr std::uint32_t kFirstRest = 8;       // calls before the first look, in which memory is taken and caches fill
constexpr std::uint32_t kShortRest = 32;      // calls between two looks when something is waited for or confirmed
constexpr std::uint64_t kExchangePart = 400;  // an exchange takes at most 1/400 of the time of the calls before it
constexpr std::uint64_t kClockPart = 400;     // and reading the clock, too
constexpr std::uint64_t kClockNs = 60;        // twice, about a call
constexpr std::uint64_t kCreditCalls = 1000;  // trials may cost their share of so many calls in advance
constexpr std::uint32_t kStrange = 3;         // looks in a row that are no accident

constexpr std::uint64_t kGain = 3;    // per cent that another program than the one in force must be faster
constexpr std::uint64_t kOne = 1000;  // a ratio of 1
constexpr std::uint64_t kMostRatio = 1000 * kOne;
constexpr std::uint32_t kAveraged = 32;         // rounds whose average counts
constexpr std::uint64_t kRoundPart = 16;        // between two rounds there are so many of the calls under this load
constexpr std::uint64_t kLegNs = 1'000'000;     // of a leg at most
constexpr std::uint64_t kLongNs = 10'000'000;   // the same where ranks are stopped: a few turns of the system's threads
constexpr std::uint64_t kMostCalls = 1000;      // of a leg
constexpr std::uint64_t kStopsNs = 50'000'000;  // of calls over which stops are averaged
constexpr std::uint64_t kFirstStopsNs = 20'000'000;  // of calls for which another program's are taken to be the same

bool differs(std::uint64_t ns, std::uint64_t known) { return ns * 10 > known * 13 || ns * 13 < known * 10; }

}  // namespace

Learner::Learner(std::size_t arms, std::size_t known, std::uint32_t share) : share_(share), arms_(arms) {
  for (std::size_t a = 1; a < arms && known != 0; ++a) arms_[a].out = a != known;
}

std::uint64_t Learner::time_of(std::uint32_t arm) const {
  const Arm& of = arms_[arm];
  const bool own = arm == best_;
  if (!own && of.rounds == 0) return 0;
  const std::uint64_t usual = own ? usual_ : usual_ * of.ratio / kOne;
  if (!stopped_) return usual;
  if (own) return usual + stop_;
  const std::uint64_t first = kFirstStopsNs / (usual_ + stop_) + 1;
  return usual + (stop_ * first + of.stop) / (first + of.calls);
}

// The calls over which stops are averaged.
std::uint64_t Learner::stops_calls() const { return kStopsNs / (usual_ + stop_) + 1; }

std::size_t Learner::left() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(arms_, [](const Arm& arm) { return !arm.excluded && !arm.out; }));
}

bool Learner::may_spend(std::uint64_t ns) const {
  const std::uint64_t all = total_ + kCreditCalls * best_ns();
  return spent_ + ns <= all / 1'000'000 * share_ + all % 1'000'000 * share_ / 1'000'000;
}

std::uint32_t Learner::period() const {
  const std::uint64_t calls = exchange_ns_ * kExchangePart / best_ns();
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(calls, kPeriod, kMostPeriod));
}

// Those of a period whose times are taken, at its end: all, where a call with what is between calls takes long.
std::uint32_t Learner::timed_calls() const {
  const std::uint64_t calls = period() * between_ns_ / (kClockPart * kClockNs);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(calls, kLook, period()));
}

// Those of a leg after so many rounds.
std::uint32_t Learner::leg_calls(std::uint32_t rounds) const {
  const std::uint64_t most = std::clamp<std::uint64_t>((stopped_ ? kLongNs : kLegNs) / best_ns(), kLook, kMostCalls);
  return static_cast<std::uint32_t>(std::min(most, std::uint64_t{kLook} << std::min(rounds, 10U)));
}

Learner::Leg Learner::leg(std::uint32_t arm, std::uint32_t calls, bool timed) {
  rested_ = !timed;
  calls_ += calls;
  if (!timed) total_ += calls * best_ns();
  return Leg{arm, calls, timed};
}

// When nothing is to be tried.
Learner::Leg Learner::watched() {
  const std::uint32_t timed = timed_calls();
  if (rested_ || timed == period()) return leg(best_, timed, true);
  return leg(best_, period() - timed, false);
}

Learner::Leg Learner::next(std::uint32_t ready) {
  if (calls_ == 0) return leg(best_, kFirstRest, false);
  if (usual_ == 0) return leg(best_, kLook, true);
  if (strange_ != 0 && own_ == 0) return rested_ ? leg(best_, kLook, true) : leg(best_, kShortRest, false);
  if (left() < 2 || (own_ == 0 && calls_ < next_round_)) return watched();
  if (own_ == 0) {
    opens_ = true;
    return leg(best_, leg_calls(round_), true);
  }
  bool waits = false;
  std::uint32_t chosen = best_;
  for (std::uint32_t a = 0; a < arms_.size(); ++a) {
    if (a == best_ || !races(a) || arms_[a].last > round_) continue;
    const bool runs = ((ready >> a) & 1U) != 0;
    waits |= !runs;
    if (runs && (chosen == best_ || arms_[a].ratio < arms_[chosen].ratio)) chosen = a;
  }
  if (chosen != best_) {
    const std::uint32_t calls = arms_[chosen].rounds == 0 ? kPeek : leg_calls(arms_[chosen].rounds);
    const std::uint64_t known = time_of(chosen);
    const std::uint64_t extra = known == 0 ? best_ns() : known > best_ns() ? known - best_ns() : 0;
    if (may_spend(extra * calls)) return leg(chosen, calls, true);
    end_round();  // it and those that are slower miss this round
    return watched();
  }
  // The exchange after a look says who is ready.
  return !waits ? watched() : rested_ ? leg(best_, kLook, true) : leg(best_, kShortRest, false);
}

void Learner::heard(const Leg& leg, const Times& times) {
  const Times in = {std::max<std::uint64_t>(times.usual, 1), std::max<std::uint64_t>(times.mean, 1), times.between,
                    times.exchange};
  total_ += in.mean * leg.calls + in.exchange;
  exchange_ns_ = exchange_ns_ == 0 ? in.exchange : (3 * exchange_ns_ + in.exchange) / 4;
  between_ns_ = in.between;
  if (leg.arm == best_) return watch(leg, in);
  Arm& arm = arms_[leg.arm];
  if (own_ == 0 || arm.excluded) return;
  const std::uint64_t ratio = std::min(in.usual * kOne / own_, kMostRatio);
  const std::uint64_t averaged = std::min(arm.rounds, kAveraged - 1);
  arm.ratio = (arm.ratio * averaged + ratio) / (averaged + 1);
  arm.calls += leg.calls;
  arm.stop += in.mean > in.usual ? (in.mean - in.usual) * leg.calls : 0;
  arm.last = round_ + 1;
  ++arm.rounds;
  // All legs of it together, since single ones depend on luck.
  arm.took += (stopped_ ? in.mean : in.usual) * leg.calls;
  arm.instead += best_ns() * leg.calls;
  const std::uint64_t cost = arm.took > arm.instead ? arm.took - arm.instead : 0;
  spent_ = spent_ + in.exchange + cost - std::exchange(arm.cost, cost);
  if (complete()) end_round();
}

// A leg of the program in force.
void Learner::watch(const Leg& leg, const Times& times) {
  if (usual_ == 0) usual_ = times.usual;
  const std::uint64_t averaged = std::max<std::uint64_t>(stops_calls(), leg.calls);
  const std::uint64_t stop = times.mean > times.usual ? times.mean - times.usual : 0;
  stop_ = (stop_ * (averaged - leg.calls) + stop * leg.calls) / averaged;
  const bool stopped = stop_ * 2 > usual_;
  const bool strange = differs(times.usual, usual_) || stopped != stopped_;
  if (strange && ++strange_ < kStrange) return;
  if (strange) {
    usual_ = times.usual;
    stopped_ = stopped;
    return begin();
  }
  strange_ = 0;
  usual_ = (7 * usual_ + times.usual) / 8;
  if (std::exchange(opens_, false)) {
    own_ = times.usual;
    if (complete()) end_round();
  }
}

// All but what to try first is of another load.
void Learner::begin() {
  ++changes_;
  for (Arm& arm : arms_) {
    const std::uint64_t before = arm.ratio;
    arm = {arm.excluded};
    arm.ratio = before;
  }
  own_ = strange_ = round_ = more_ = 0;
  opens_ = false;
  since_ = next_round_ = calls_;
}

void Learner::exclude(std::uint32_t arm) {
  arms_[arm].excluded = true;
  if (best_ == arm) lead(0);
  if (complete()) end_round();
}

void Learner::add() {
  arms_.emplace_back();
  more_ = kRounds;
  next_round_ = calls_;
}

void Learner::lead(std::uint32_t arm) {
  const std::uint64_t ratio = std::max<std::uint64_t>(arms_[arm].rounds == 0 ? kOne : arms_[arm].ratio, 1);
  const std::uint64_t stop = arms_[arm].rounds == 0 || !stopped_ ? stop_ : time_of(arm) - usual_ * ratio / kOne;
  Arm& before = arms_[best_];
  before.ratio = kOne;
  before.rounds = std::max(before.rounds, arms_[arm].rounds);
  before.calls = stops_calls();
  before.stop = before.calls * stop_;
  for (Arm& other : arms_) other.ratio = std::min(other.ratio * kOne / ratio, kMostRatio);
  usual_ = std::max<std::uint64_t>(usual_ * ratio / kOne, 1);
  stop_ = stop;
  best_ = arm;
}

// Whether the round has begun, and all have had their legs.
bool Learner::complete() const {
  bool all = own_ != 0;
  for (std::uint32_t a = 0; a < arms_.size(); ++a) all &= a == best_ || !races(a) || arms_[a].last > round_;
  return all;
}

void Learner::end_round() {
  std::uint32_t fastest = best_;
  for (std::uint32_t a = 0; a < arms_.size(); ++a) {
    if (races(a) && arms_[a].rounds != 0 && time_of(a) < time_of(fastest)) fastest = a;
  }
  const auto of = [](const Arm& arm) { return std::min<std::size_t>(arm.rounds, kOut.size()) - 1; };
  if (fastest != best_ && time_of(fastest) * (100 + kGain) < best_ns() * 100) lead(fastest);
  for (std::uint32_t a = 0; a < arms_.size(); ++a) {
    Arm& arm = arms_[a];
    if (a == best_ || !races(a) || arm.rounds == 0) continue;
    arm.out = time_of(a) * 100 > best_ns() * (100 + kOut[of(arm)]);
  }
  own_ = 0;
  ++round_;
  if (more_ != 0) --more_;
  if (settled() && more_ == 0) next_round_ = calls_ + (calls_ - since_) / kRoundPart;
}

}  // namespace gc3::select
