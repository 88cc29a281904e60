// One wait of a rank for other ranks. It spins if there is a core for each rank, then yields the core, then sleeps, and
// regularly checks whether the other ranks live. Once it spins no more, it goes on with what its process has started.
// wait_policy.h decides when it sleeps at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/waiting/bells.h"
#include "gc3/runtime/core/waiting/wait_policy.h"

namespace gc3::core {

class Waiter {
 public:
  // What is checked regularly, instead of Group::check_wait, by waits outside the order of the group's calls. Several
  // threads of a rank may wait so at once, so these waits do not measure how to wait, and sleep at the rank's Doorbell.
  class Check {
   public:
    virtual Status look(double waited_s) = 0;

   protected:
    ~Check() = default;
  };

  // Where a rank sleeps that awaits something for which no rank rings.
  class Elsewhere {
   public:
    // False: nothing is awaited there.
    virtual bool sleep(std::chrono::nanoseconds at_most) = 0;

   protected:
    ~Elsewhere() = default;
  };

  // `spins`: the checks before the core is yielded, where each rank has a core; none: as measured.
  Waiter(Group& group, const Interrupted& interrupted, Check* check = nullptr, std::optional<std::uint64_t> spins = {},
         Elsewhere* elsewhere = nullptr)
      : group_(group),
        interrupted_(interrupted),
        check_(check),
        elsewhere_(elsewhere),
        most_spins_(static_cast<std::uint32_t>(spins.value_or(group.single_copy().thresholds.spins))) {
    start();
  }
  ~Waiter() { cancel(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Says that the caller has rung for all that it has posted, and posts nothing while it waits. Otherwise each sleep
  // rings, and with more ranks than bits of Bells that wakes ranks that await another one.
  void post_nothing() { posts_ = false; }
  // Says that the call is small: the ranks do little but wait. So fewer cores are enough for them, see
  // WaitPolicy::gathers, and other load shows, see WaitPolicy::has_lost_core.
  void is_of_small_call() {
    gathers_ = group_.wait_policy().gathers();
    small_ = group_.wait_policy().looks_at_yields();
  }

  // To be called after progress.
  void renew() {
    if (looks_ > quick_) end();
    looks_ = 0;
  }
  // To be called after a check without progress. False if the wait has failed, see problem(). `awaited()`: the ranks
  // whose posts can end the wait, in the form of Bells.
  template <class Awaited>
  bool rest(const Awaited& awaited) {
    if (++looks_ <= quick_) {
      relax();
      return true;
    }
    const Next next = go_on();
    if (next == Next::sleep) sleep(awaited());
    return next != Next::fail;
  }
  // The same of a wait with a Check.
  bool rest() {
    if (++looks_ > quick_) return pause();
    relax();
    return true;
  }
  Diagnostic& problem() { return *problem_; }

  // Passes the shortest time between two checks.
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Next : std::uint8_t { look, sleep, fail };
  static constexpr std::uint32_t kQuick = 256;

  void start() {
    const WaitPolicy& policy = group_.wait_policy();
    quick_ = policy.spins() ? std::min(kQuick, most_spins_) : 0;
    // Also before it sleeps at once: who is awake when the awaited rank has woken up lets that one stay awake, too.
    spins_ = quick_ != 0 && policy.mode() != WaitMode::block ? most_spins_ : quick_;
    // Its checks are system calls, as long as a yield. On a core that nobody else needs a yield costs no time; on any
    // other spinning would keep the awaited rank from running, which may be one of another simulated host.
    if (elsewhere_ != nullptr && policy.mode() != WaitMode::spin) quick_ = spins_ = 0;
  }
  Next go_on();
  bool pause();
  void yield(std::uint32_t pauses);
  bool check_wait(Clock::time_point now);
  Clock::duration longest_sleep() const;
  void sleep(std::uint32_t awaited);
  void cancel() {
    if (cores_) cores_->keep_here();
    cores_.reset();
    if (armed_ && check_ == nullptr) group_.bells().cancel();
    if (armed_ && check_ != nullptr) group_.doorbell(group_.rank()).withdraw();
    armed_ = false;
  }
  void end();

  Group& group_;
  const Interrupted& interrupted_;
  Check* check_;
  Elsewhere* elsewhere_;
  std::uint32_t most_spins_;
  std::uint32_t quick_;  // checks before anything else is done
  std::uint32_t spins_;  // checks before the core is yielded
  std::uint32_t looks_ = 0;
  WaitPolicy::First first_ = WaitPolicy::First::yield;
  bool posts_ = true;           // see post_nothing
  bool gathers_ = false;        // see is_of_small_call
  bool small_ = false;          // the same: yields may show other load
  bool doubts_ = false;         // see WaitPolicy::doubt
  std::optional<Cores> cores_;  // of the thread, if it has been confined to fewer for this wait
  bool armed_ = false;          // Bells::prepare was called, or Doorbell::announce
  std::uint32_t rung_ = 0;      // see Doorbell::sleep
  bool slept_ = false;          // at the doorbell, since it was announced
  std::optional<bool> late_;    // whether some rank had not made the call yet when the wait became long
  bool yields_ = false;
  bool lost_ = false;                     // see WaitPolicy::has_lost_core
  WaitClock since_{Clock::time_point()};  // the first reading of the clock after the last progress
  Clock::time_point looked_after_;
  std::optional<Diagnostic> problem_;
};

}  // namespace gc3::core
