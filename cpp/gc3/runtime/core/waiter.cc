#include "gc3/runtime/core/waiter.h"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace gc3::core {
namespace {

using std::chrono::microseconds;

constexpr std::uint32_t kPausesPerLook = 8;  // pauses between two readings of the clock, except the first ones
constexpr std::uint32_t kRelaxed = 100;      // the same, in the mode that spins
constexpr microseconds kAwake{2'000};        // if the other rank is later, waking up takes additional time
constexpr microseconds kShortestSleep{50};
constexpr microseconds kLongestSleep{1'000};
constexpr microseconds kBetweenChecks{10'000};
// Hundreds of ranks on a core would use it up by looking. So a wait that has taken long looks and checks less often:
// after an eighth of its time, but at least so often.
constexpr int kPart = 8;
constexpr microseconds kRareLooks{10'000};
constexpr microseconds kRareChecks{100'000};

}  // namespace

Waiter::Next Waiter::go_on() {
  // Another rank on this rank's core cannot run while this one spins.
  if (looks_ == quick_ + 1 && spins_ > quick_ && group_.shares_core()) spins_ = quick_;
  if (looks_ <= spins_) {
    relax();
    return Next::look;
  }
  // The clock and the other ranks are checked before the core is yielded, because this rank may then lose it for long.
  const std::uint32_t pauses = looks_ - spins_;
  const bool told_to_spin = group_.wait_policy().mode() == WaitMode::spin;
  const std::uint32_t regular = told_to_spin ? kRelaxed : kPausesPerLook;
  if (pauses == 1) {
    looked_after_ = Clock::now();
    since_ = WaitClock(looked_after_);
    late_.reset();
    lost_ = (elsewhere_ != nullptr || small_) && group_.wait_policy().has_lost_core();
    doubts_ = small_ && !lost_ && group_.wait_policy().is_in_doubt();
    first_ = lost_ ? WaitPolicy::First::sleep : group_.wait_policy().first();
    if (!gathers_ || first_ == WaitPolicy::First::yield) group_.spread(looked_after_);
    yields_ = first_ != WaitPolicy::First::sleep;
    if (!yields_) {
      late_ = !group_.all_here();
      // Or nothing would show that no other process takes turns any more, and no wait would spin again.
      if (elsewhere_ == nullptr && group_.wait_policy().takes_turns()) yield(pauses);
    }
  } else if (!yields_ || pauses % regular == 0 || (pauses & (pauses - 1)) == 0) {
    const Clock::time_point now = Clock::now();
    if (!check_wait(now)) return Next::fail;
    const auto waited = since_.waited(now);
    if (!late_ && waited > WaitPolicy::kLong) late_ = !group_.all_here();
    yields_ = yields_ && waited < (first_ == WaitPolicy::First::trial ? Clock::duration(WaitPolicy::kLong) : kAwake);
  }
  if (group_.job()->pending().go_on()) return Next::look;
  if (!yields_) return Next::sleep;
  if (told_to_spin) {
    relax();
  } else {
    yield(pauses);
  }
  return Next::look;
}

// Yields the core. If another process has kept it for long, this wait sleeps afterwards.
void Waiter::yield(std::uint32_t pauses) {
  WaitPolicy& policy = group_.wait_policy();
  const bool elsewhere = check_ != nullptr || elsewhere_ != nullptr;
  const bool first = pauses == 1 && !elsewhere && policy.core_each();
  if (!elsewhere && !first && !doubts_) {
    sched_yield();
    return;
  }
  const auto used = doubts_ ? group_.processor_time() : std::chrono::nanoseconds::zero();
  const Clock::time_point before = Clock::now();
  sched_yield();
  const Clock::duration took = Clock::now() - before;
  if (first) policy.note_first_yield(took);
  // Another process, and no rank, has had the core for a good part of so long a yield.
  const bool lost = doubts_ && took >= WaitPolicy::kLost && 4 * (group_.processor_time() - used) < 3 * took;
  if ((!elsewhere && !lost) || !policy.note_yield(took)) return;
  lost_ = true;
  yields_ = false;
}

bool Waiter::pause() {
  if (looks_ <= spins_) {
    relax();
    return true;
  }
  const std::uint32_t pauses = looks_ - spins_;
  if (pauses == 1) {
    looked_after_ = Clock::now();
    since_ = WaitClock(looked_after_);
    WaitPolicy& policy = group_.wait_policy();
    lost_ = policy.has_lost_core();
    yields_ = !lost_ && !policy.blocks_messages();
  } else if (!yields_ || pauses % kPausesPerLook == 0) {
    const Clock::time_point now = Clock::now();
    if (!check_wait(now)) return false;
    const Clock::duration waited = since_.waited(now);
    if (group_.job()->pending().go_on()) return true;
    if (!yields_ || waited > kAwake) {
      looks_ = spins_ + kPausesPerLook - 1;  // read the clock again afterwards
      if (elsewhere_ != nullptr) {
        // A fraction of the time waited, so that the wait ends soon after its cause.
        const auto time = std::max<Clock::duration>(waited / kPart, kShortestSleep);
        const auto at_most = std::min<Clock::duration>(time, longest_sleep());
        if (!elsewhere_->sleep(at_most)) std::this_thread::sleep_for(at_most);
        return true;
      }
      Doorbell& bell = group_.doorbell(group_.rank());
      if (!armed_) {
        rung_ = bell.announce();
        armed_ = true;
        slept_ = false;
        return true;  // the caller checks again
      }
      // The group's failures ring no bell.
      rung_ = bell.sleep(rung_, std::exchange(slept_, true) ? kLongestSleep : kShortestSleep);
      return true;
    }
  }
  if (yields_) yield(pauses);
  return true;
}

bool Waiter::check_wait(Clock::time_point now) {
  const Clock::duration waited = since_.waited(now);
  const auto between = std::clamp<Clock::duration>(waited / kPart, kBetweenChecks, kRareChecks);
  if (now - looked_after_ <= between) return true;
  looked_after_ = now;
  const double waited_s = std::chrono::duration<double>(waited).count();
  Status status = check_ != nullptr ? check_->look(waited_s) : group_.check_wait(waited_s, interrupted_);
  if (!status.ok()) problem_ = std::move(status.error());
  return status.ok();
}

// Nobody rings for work that was started.
Waiter::Clock::duration Waiter::longest_sleep() const {
  return group_.job()->pending().any() ? kShortestSleep : kLongestSleep;
}

void Waiter::sleep(std::uint32_t awaited) {
  Bells& bells = group_.bells();
  const Clock::duration part = std::clamp<Clock::duration>(since_.waited() / kPart, kShortestSleep, kRareLooks);
  if (elsewhere_ != nullptr && elsewhere_->sleep(std::min<Clock::duration>(part, longest_sleep()))) return;
  if (!armed_) {
    bells.prepare(awaited);
    armed_ = true;
    return;  // the caller checks again
  }
  // If some rank does not ring yet, the sleep is a fraction of the time waited, so that the wait ends soon after the
  // post. Otherwise it ends for the checks only: a time-out beyond the system's next tick sets no timer of the core,
  // which takes microseconds in a virtual machine.
  const Clock::duration at_most = bells.is_sure() ? kRareLooks : part;
  if (gathers_ && first_ == WaitPolicy::First::sleep && !cores_) cores_ = group_.gather();
  bells.sleep(awaited, group_.job()->pending().any() ? kShortestSleep : at_most, posts_);
}

void Waiter::end() {
  cancel();
  WaitPolicy& policy = group_.wait_policy();
  if (looks_ > spins_ && !lost_) {
    const Clock::duration waited = check_ == nullptr ? since_.waited() : Clock::duration::zero();
    if (small_ && waited >= WaitPolicy::kLost) policy.doubt();
    if (check_ == nullptr && !late_.value_or(false)) {
      gathers_ ? policy.note_small(first_, waited) : policy.note(first_, waited);
    }
    if ((check_ != nullptr || elsewhere_ != nullptr || small_) && yields_) policy.note_kept_core();
  }
  start();
}

}  // namespace gc3::core
