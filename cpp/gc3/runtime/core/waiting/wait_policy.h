// How the waits of a group begin: by yielding the core to the next in the queue (sched_yield), or by sleeping at once.
//
// On a quiet machine a yield gives the core to another rank within a microsecond. If the ranks are in different
// sessions and Linux schedules each session as a group (autogroup), a yield may have no effect, and with other load it
// may give the core to that load for milliseconds. How much of that happens changes, so it is measured. If waits take
// long although all ranks have made the call, some waits sleep at once. If these are much shorter, later ones do so as
// well, and from time to time one yields as a trial. In small calls of ranks that share cores neither tells enough: a
// rank that sleeps waits as long as those that still yield, and one that yields soon gets its core back from those that
// sleep. There a few waits of a length that only other load explains are enough, and after many calls all yield again.
// Within one session all that would mislead: there a rank that sleeps shortens its own waits, but a call of 8 ranks on
// 2 cores took up to 3 times as long. So waits yield, but in small calls beside other load, which a single yield can
// show: see has_lost_core.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <string_view>

#include "gc3/base/result.h"

namespace gc3::core {

enum class WaitMode : std::uint8_t { automatic, spin, yield, block };
// Reads "auto", "spin", "yield" or "block".
Result<WaitMode> parse_wait_mode(std::string_view text);

// How long something takes, without the times in which this process has been stopped, as by a batch system or a
// debugger: a limit that passes meanwhile must end nothing, for the other ranks may have been stopped as well. Such a
// time shows as a gap between two readings, so whoever waits reads often.
class WaitClock {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLongestGap{250};  // so much of a gap counts

  explicit WaitClock(Clock::time_point start = Clock::now()) : start_(start), read_(start) {}
  Clock::duration waited(Clock::time_point now = Clock::now()) {
    if (now - read_ > kLongestGap) start_ += now - read_ - kLongestGap;
    read_ = now;
    return now - start_;
  }
  double waited_s(Clock::time_point now = Clock::now()) { return std::chrono::duration<double>(waited(now)).count(); }

 private:
  Clock::time_point start_;
  Clock::time_point read_;
};

// Waits for a call at most so long by that clock; after a time-out, and where it was interrupted (Aborted), it goes on.
Status wait_for(const std::shared_future<Status>& done, double timeout_s, const std::function<bool()>& interrupted);

class WaitPolicy {
 public:
  using Duration = std::chrono::nanoseconds;
  // Yielding waits from this length on may be replaced by sleeping ones; a trial yields at most so long.
  static constexpr Duration kLong = std::chrono::microseconds(100);
  // A yield of this length has given the core to a process that computes: another rank that waits gives it back sooner.
  static constexpr Duration kLost = std::chrono::milliseconds(1);
  // A shorter yield has given the core to nobody: two switches between threads alone take about as long.
  static constexpr Duration kHandedOver = std::chrono::microseconds(2);
  static constexpr std::uint32_t kTurns = 64;  // waits that do not spin after a yield that has handed the core over

  WaitPolicy() = default;
  // `apart`: the ranks are in different sessions, each of which the system schedules as a group.
  WaitPolicy(WaitMode mode, bool core_each, bool apart) : mode_(mode), core_each_(core_each), apart_(apart) {}

  WaitMode mode() const { return mode_; }
  bool core_each() const { return core_each_; }
  // Whether waits sleep at once, by the mode or by measurement.
  bool blocks() const { return mode_ == WaitMode::block || blocks_.load(std::memory_order_relaxed); }

  // The same of waits for messages, which nobody measures. A rank of another session does not get the core by a yield.
  bool blocks_messages() const { return blocks() || gathers(); }

  // Whether ranks that sleep in small calls do so on half of the cores. There they wake each other without waiting for
  // other work, which the system moves to the cores that it finds less loaded.
  bool gathers() const { return mode_ == WaitMode::automatic && apart_ && !core_each_; }

  // Waits for messages, for other hosts, and of small calls within one session also look at single yields, because
  // beside a process that computes each may take as long as the system lets it run. After such a yield so many waits
  // sleep at once, then one yields as a trial. From any thread.
  bool has_lost_core();            // whether a wait that begins sleeps at once for that reason
  bool note_yield(Duration took);  // whether it took so long
  void note_kept_core();           // a wait has yielded, and no yield took so long
  bool looks_at_yields() const { return !apart_ && mode_ == WaitMode::automatic; }  // in small calls
  // In a small call a rank of the job that still computes or copies may have had a shared core for so long. So after a
  // wait of that length some waits find out how much processor time the ranks have had during each yield.
  void doubt() { doubted_.store(kDoubted, std::memory_order_relaxed); }
  bool is_in_doubt();  // whether a wait that begins does so

  // Whether another process takes turns with a rank on its core, though there is a core for each rank of this job on
  // this host: a rank of another job, or of another simulated host. It cannot run while this rank spins, so waits do
  // not spin then. The first yield of each wait shows it: the core comes back later than at once, and sooner than from
  // a process that computes.
  bool takes_turns() const { return turns_.load(std::memory_order_relaxed) != 0; }
  void note_first_yield(Duration took);

  // Whether waits spin first. With fewer cores than ranks, a spinning rank would keep the awaited rank from running.
  bool spins() const { return mode_ == WaitMode::spin || (core_each_ && mode_ != WaitMode::yield && !takes_turns()); }

  // What a wait does first after spinning without success: yield, yield as a trial, or sleep.
  enum class First : std::uint8_t { yield, trial, sleep };
  First first();
  // Records the duration of the wait after spinning. Waits for a rank that has not made the call yet are not recorded,
  // because they show nothing about the way of waiting.
  void note(First first, Duration waited);
  // The same where gathers() holds, in small calls.
  void note_small(First first, Duration waited);

  // Describes how waits begin, and why.
  std::string describe() const;

 private:
  // The number of waits in a comparison, unless they reach a total time before. With fewer, one interruption by other
  // load would decide the result.
  static constexpr std::uint32_t kWindow = 256;
  static constexpr Duration kLongestWindow = std::chrono::milliseconds(50);
  static constexpr std::uint32_t kFewestPaid = 8;
  static constexpr std::uint32_t kOneIn =
      4;                              // of so many waits one must be long; with fewer, yielding is best for most
  static constexpr int kShorter = 4;  // times; with less, sleeping would cost more on a quiet machine than it saves
  static constexpr std::uint32_t kLeastBetween = 16;
  static constexpr std::uint32_t kMostBetween = 4096;
  static constexpr std::uint32_t kDoubted = 8;
  // So many lost waits of a window, somewhat less than 1 in 100, show other load. The start of a job has some as well.
  static constexpr std::uint32_t kLostWaits = 8;
  static constexpr std::uint32_t kSmallWindow = 1024;
  // How many waits of small calls sleep before they yield again; each time four times as many, if the load is still
  // there. So few lost waits of each rank are no part of the percentiles. A time would pass between calls as well.
  static constexpr std::uint32_t kFewestSleeps = 1024;
  static constexpr std::uint32_t kMostSleeps = kFewestSleeps << 6U;
  static constexpr std::uint32_t kUntrusted = 4096;  // yielding waits of which none may be lost then

  void note_trial(Duration waited);
  void put_off();  // postpones the next trial or comparison
  void begin_window() {
    seen_ = 0;
    long_ = 0;
    total_ = Duration::zero();
  }

  WaitMode mode_ = WaitMode::automatic;
  bool core_each_ = false;
  bool apart_ = false;
  // Relaxed, because only describe() is called on another thread.
  std::atomic<bool> blocks_ = false;
  std::atomic<std::int64_t> yield_ns_ = 0;  // mean yielding wait in the last comparison
  std::atomic<std::int64_t> sleep_ns_ = 0;
  bool compares_ = false;  // the waits of this window sleep at once, for a comparison with the last window
  std::uint32_t seen_ = 0;
  std::uint32_t long_ = 0;  // of these
  Duration total_ = Duration::zero();
  std::uint32_t between_ = kLeastBetween;  // windows, or waits, between two comparisons
  std::uint32_t left_ = 0;                 // until the next one
  std::uint32_t paid_ = 0;                 // consecutive trials that were short
  // Of small calls.
  std::uint32_t small_ = 0;      // yielding waits of a window, of which these were
  std::uint32_t lost_ = 0;       // as long as only other load explains
  std::uint32_t sleeps_ = 0;     // further waits that sleep, of
  std::uint32_t most_ = 0;       // so many
  std::uint32_t untrusted_ = 0;  // further waits of which one that is lost shows that the load is still there
  // Of single yields. Relaxed: threads that change them at once lose a count, which does no harm.
  std::atomic<std::uint32_t> sleeping_ = 0;  // further waits that sleep at once
  std::atomic<std::uint32_t> next_sleeping_ = kLeastBetween;
  std::atomic<std::uint32_t> doubted_ = 0;  // further waits that find out who has the core
  std::atomic<std::uint32_t> turns_ = 0;    // further waits that do not spin
};

}  // namespace gc3::core
