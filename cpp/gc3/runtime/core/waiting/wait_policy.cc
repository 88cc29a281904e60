#include "gc3/runtime/core/waiting/wait_policy.h"

#include <algorithm>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"

namespace gc3::core {
namespace {

std::string in_microseconds(std::int64_t ns) { return std::to_string((ns + 500) / 1000) + " us"; }

}  // namespace

Result<WaitMode> parse_wait_mode(std::string_view text) {
  if (text == "auto") return WaitMode::automatic;
  if (text == "spin") return WaitMode::spin;
  if (text == "yield") return WaitMode::yield;
  if (text == "block") return WaitMode::block;
  return Diagnostic(ErrorCode::BadOption,
                    "wait='" + std::string(text) + "' (GC3_WAIT): expected auto, spin, yield or block");
}

Status wait_for(const std::shared_future<Status>& done, double timeout_s, const std::function<bool()>& interrupted) {
  constexpr std::chrono::duration<double> kSignals(0.02);  // between checks for signals
  WaitClock clock;
  for (;;) {
    const std::chrono::duration<double> left(timeout_s - clock.waited_s());
    if (done.wait_for(std::min(left, kSignals)) == std::future_status::ready) return {};
    if (left.count() <= 0) {
      return Diagnostic(ErrorCode::Timeout, "the call has not finished after " + std::to_string(timeout_s) + " s");
    }
    if (interrupted && interrupted()) return Diagnostic(ErrorCode::Aborted, "interrupted");
  }
}

WaitPolicy::First WaitPolicy::first() {
  if (mode_ == WaitMode::block || compares_) return First::sleep;
  if (sleeps_ != 0) {
    if (--sleeps_ == 0) blocks_.store(false, std::memory_order_relaxed);
    return First::sleep;
  }
  if (!blocks_.load(std::memory_order_relaxed)) return First::yield;
  if (left_ != 0) {
    --left_;
    return First::sleep;
  }
  return First::trial;
}

void WaitPolicy::note(First first, Duration waited) {
  if (mode_ != WaitMode::automatic || !apart_) return;
  if (first == First::trial) return note_trial(waited);
  if (blocks_.load(std::memory_order_relaxed)) return;
  total_ += waited;
  if (waited > kLong) ++long_;
  if (++seen_ < kWindow && total_ < kLongestWindow) return;
  const Duration mean = total_ / seen_;
  const bool often_long = kOneIn * long_ >= seen_;
  begin_window();
  if (!compares_) {
    if (!often_long) {
      between_ = kLeastBetween;
      left_ = 0;
    } else if (left_ != 0) {
      --left_;
    } else {
      yield_ns_.store(mean.count(), std::memory_order_relaxed);
      compares_ = true;
    }
    return;
  }
  compares_ = false;
  sleep_ns_.store(mean.count(), std::memory_order_relaxed);
  if (mean.count() < yield_ns_.load(std::memory_order_relaxed) / kShorter)
    blocks_.store(true, std::memory_order_relaxed);
  put_off();
}

void WaitPolicy::note_small(First first, Duration waited) {
  if (mode_ != WaitMode::automatic || first == First::sleep) return;
  if (first == First::trial) return note_trial(waited);
  const bool again = untrusted_ != 0;
  if (again) --untrusted_;
  if (++small_ == kSmallWindow) small_ = lost_ = 0;
  if (waited < kLost || (++lost_ < kLostWaits && !again)) return;
  most_ = again ? std::min(4 * most_, kMostSleeps) : kFewestSleeps;
  sleeps_ = most_;
  untrusted_ = kUntrusted;
  small_ = lost_ = 0;
  yield_ns_.store(waited.count(), std::memory_order_relaxed);
  sleep_ns_.store(0, std::memory_order_relaxed);
  blocks_.store(true, std::memory_order_relaxed);
}

void WaitPolicy::note_trial(Duration waited) {
  if (waited > kLong) {
    paid_ = 0;
    put_off();
  } else if (++paid_ < kFewestPaid) {
    left_ = kFewestPaid;
  } else {
    blocks_.store(false, std::memory_order_relaxed);
    paid_ = 0;
    left_ = 0;
    begin_window();
  }
}

void WaitPolicy::put_off() {
  left_ = between_;
  between_ = std::min(2 * between_, kMostBetween);
}

bool WaitPolicy::has_lost_core() {
  const std::uint32_t left = sleeping_.load(std::memory_order_relaxed);
  if (left == 0) return false;
  sleeping_.store(left - 1, std::memory_order_relaxed);
  return true;
}

bool WaitPolicy::is_in_doubt() {
  const std::uint32_t left = doubted_.load(std::memory_order_relaxed);
  if (left != 0) doubted_.store(left - 1, std::memory_order_relaxed);
  return left != 0;
}

bool WaitPolicy::note_yield(Duration took) {
  if (mode_ != WaitMode::automatic || took < kLost) return false;
  const std::uint32_t waits = next_sleeping_.load(std::memory_order_relaxed);
  sleeping_.store(waits, std::memory_order_relaxed);
  doubt();  // of the trial
  next_sleeping_.store(std::min(2 * waits, kMostBetween), std::memory_order_relaxed);
  return true;
}

// Not all at once: beside such a process some waits are lucky.
void WaitPolicy::note_kept_core() {
  const std::uint32_t waits = next_sleeping_.load(std::memory_order_relaxed);
  if (waits > kLeastBetween) next_sleeping_.store(waits / 2, std::memory_order_relaxed);
}

void WaitPolicy::note_first_yield(Duration took) {
  if (mode_ != WaitMode::automatic) return;
  const std::uint32_t left = turns_.load(std::memory_order_relaxed);
  if (took >= kLong) {
    turns_.store(0, std::memory_order_relaxed);
  } else if (took >= kHandedOver) {
    turns_.store(kTurns, std::memory_order_relaxed);
  } else if (left != 0) {
    turns_.store(left - 1, std::memory_order_relaxed);
  }
}

std::string WaitPolicy::describe() const {
  if (mode_ == WaitMode::block) return "sleeps at once, as told";
  if (mode_ == WaitMode::yield) return "yields the core at once, as told";
  if (mode_ == WaitMode::spin) return "spins, as told";
  std::string cores = core_each_ ? "a core for each rank" : "more ranks than cores";
  if (apart_) cores += ", in sessions that the system schedules as groups";
  if (!blocks_.load(std::memory_order_relaxed)) {
    if (takes_turns()) cores += ", but other processes take turns with the ranks";
    if (sleeping_.load(std::memory_order_relaxed) != 0) cores += "; other load has the cores, so small calls sleep";
    return std::string(spins() ? "spins, then yields the core: " : "yields the core at once: ") + cores;
  }
  const std::int64_t sleeping = sleep_ns_.load(std::memory_order_relaxed);
  return "sleeps at once: " + cores + ", and waits took " + in_microseconds(yield_ns_.load(std::memory_order_relaxed)) +
         " yielding" + (sleeping != 0 ? " and " + in_microseconds(sleeping) + " sleeping" : "");
}

}  // namespace gc3::core
