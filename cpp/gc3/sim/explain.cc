#include "gc3/sim/explain.h"

#include <algorithm>

#include "gc3/base/interrupt.h"

namespace gc3::sim {
namespace {

// Walks back from the last operation to the launch.
class Walk {
 public:
  explicit Walk(const Outcome& outcome) : records_(outcome.records) {
    // The operation before each in its threadblock.
    std::vector<std::uint32_t> latest;
    previous_.reserve(records_.size());
    for (std::uint32_t k = 0; k < records_.size(); ++k) {
      const std::uint32_t tb = records_[k].tb;
      if (tb >= latest.size()) latest.resize(tb + std::size_t{1}, kNone);
      previous_.push_back(latest[tb]);
      latest[tb] = k;
    }
  }

  std::vector<Segment> run() {
    std::uint32_t at = 0;
    Breath breathe;
    for (std::uint32_t k = 1; k < records_.size(); ++k) {
      breathe();
      if (records_[k].end > records_[at].end) at = k;
    }
    Time time = records_[at].end;
    while (at != kNone) {
      const Record& r = records_[at];
      if (time > r.start) {
        // The end of the slice is decided by the threadblock itself, its links, or the data it received.
        if (r.delivered_by == Cause::input && time >= r.end && r.sent_by != kNone) {
          const std::uint32_t sender = r.sent_by;
          add(at, Cause::latency, records_[sender].delivered, time);
          time = std::min(time, records_[sender].delivered);
          at = sender;
          continue;
        }
        const bool own = r.delivered_by == Cause::program || r.delivered_by == Cause::compute;
        const bool by_link = time >= r.delivered && !own && r.delivered_by != Cause::input;
        add(at, by_link || own ? r.delivered_by : Cause::program, r.start, time, by_link ? r.resource : kNone);
        time = r.start;
      }
      at = step_back(at, time);
    }
    if (time > 0) add(kNone, Cause::launch, 0, time);
    std::ranges::reverse(path_);
    return std::move(path_);
  }

 private:
  // From the start of operation `at` to the operation it waited for; moves `time` there.
  std::uint32_t step_back(std::uint32_t at, Time& time) {
    const Record& r = records_[at];
    if (time > r.due) {
      add(at, Cause::core, r.due, time);
      time = r.due;
    }
    if (r.due > r.ready && r.before != kNone) {
      const Record& other = records_[r.before];
      if (r.wait == Cause::input) {
        // With cut-through the first line decides: it left soon after the sender's start.
        const Time left = other.delivered <= r.due ? other.delivered : other.start;
        add(at, Cause::latency, left, time);
        time = left;
        return r.before;
      }
      if (r.wait == Cause::credit || r.wait == Cause::semaphore || r.wait == Cause::receiver ||
          r.wait == Cause::compute) {
        add(at, r.wait, other.end, time);
        time = std::min(time, other.end);
        return r.before;
      }
    }
    if (r.due > r.ready) {
      add(at, r.wait, r.ready, time);
      time = std::min(time, r.ready);
    }
    return previous_[at];
  }

  void add(std::uint32_t record, Cause cause, Time from, Time to, std::uint32_t resource = kNone) {
    if (to > from) path_.push_back({from, to, record, resource, cause});
  }

  const std::vector<Record>& records_;
  std::vector<std::uint32_t> previous_;
  std::vector<Segment> path_;
};

}  // namespace

Explanation explain(const Outcome& outcome) {
  Explanation result;
  if (outcome.records.empty()) {
    if (outcome.time > 0) result.path.push_back({0, outcome.time, kNone, kNone, Cause::launch});
  } else {
    result.path = Walk(outcome).run();
    // A real call takes longer than the last step: results are handed over, and the ranks synchronise.
    const Time last = result.path.empty() ? 0 : result.path.back().to;
    if (outcome.time > last) result.path.push_back({last, outcome.time, kNone, kNone, Cause::launch});
  }
  for (const Segment& s : result.path) result.on_path[static_cast<std::size_t>(s.cause)] += s.to - s.from;
  for (const Record& r : outcome.records) {
    result.stalls[static_cast<std::size_t>(r.wait)] += r.due - r.ready;
    result.stalls[static_cast<std::size_t>(Cause::core)] += r.start - r.due;
    result.work += r.end - r.start;
  }
  return result;
}

}  // namespace gc3::sim
