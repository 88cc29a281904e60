// How the waits of a group begin: by giving the core to whoever is next (sched_yield), or by sleeping at once.
//
// On a quiet machine a yield gives the core to another rank, in a microsecond. Beside other work it may give it to that
// work for milliseconds; or to nobody, where Linux schedules each session as a group of its own (autogroup). The
// difference is not visible beforehand, and changes. So it is measured: once waits take long although all ranks have
// made the call, some sleep at once; if they are much shorter, later ones do as well, and now and then one yields
// again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "gc3/base/result.h"

namespace gc3::core {

enum class WaitMode : std::uint8_t { automatic, spin, yield, block };
// Of "auto", "spin", "yield" or "block".
Result<WaitMode> parse_wait_mode(std::string_view text);

class WaitPolicy {
 public:
  using Duration = std::chrono::nanoseconds;
  // A yielding wait that a sleeping one may replace; a trial yields for so long at most.
  static constexpr Duration kLong = std::chrono::microseconds(100);

  WaitPolicy() = default;
  // `apart`: the ranks are in sessions that the system schedules as groups.
  WaitPolicy(WaitMode mode, bool core_each, bool apart) : mode_(mode), core_each_(core_each), apart_(apart) {}

  WaitMode mode() const { return mode_; }
  bool core_each() const { return core_each_; }
  // Whether waits sleep at once, as has been told or measured.
  bool blocks() const { return mode_ == WaitMode::block || blocks_.load(std::memory_order_relaxed); }

  // The beginning of a wait that spinning has not ended: whether it yields first, and whether that is a trial.
  enum class First : std::uint8_t { yield, trial, sleep };
  First first();
  // How long the wait has taken since. Waits for a rank that has not made the call yet say nothing, and are not noted.
  void note(First first, Duration waited);

  // What is done, and why.
  std::string describe() const;

 private:
  // The waits of one kind that are compared: so many, or as many as take so long. Fewer would mistake a core that was
  // taken away once for the ordinary.
  static constexpr std::uint32_t kWindow = 256;
  static constexpr Duration kLongestWindow = std::chrono::milliseconds(50);
  static constexpr std::uint32_t kFewestPaid = 8;
  static constexpr int kShorter = 8;  // times, or sleeping costs more on a quiet machine than it saves on a busy one
  static constexpr std::uint32_t kLeastBetween = 16;
  static constexpr std::uint32_t kMostBetween = 4096;

  void note_trial(Duration waited);
  void put_off();  // the next trial, or the next comparison
  void begin_window() {
    seen_ = 0;
    total_ = Duration::zero();
  }

  WaitMode mode_ = WaitMode::automatic;
  bool core_each_ = false;
  bool apart_ = false;
  // Relaxed: only describe() is called from another thread.
  std::atomic<bool> blocks_ = false;
  std::atomic<std::int64_t> yield_ns_ = 0;  // mean wait when the two were compared
  std::atomic<std::int64_t> sleep_ns_ = 0;
  bool compares_ = false;  // the waits of this window sleep at once, to be compared with the last window
  std::uint32_t seen_ = 0;
  Duration total_ = Duration::zero();
  std::uint32_t between_ = kLeastBetween;  // windows, or waits, between two comparisons
  std::uint32_t left_ = 0;                 // until the next one
  std::uint32_t paid_ = 0;                 // trials in succession that were short
};

}  // namespace gc3::core
