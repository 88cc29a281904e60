// How the ranks of a group find out whether they can copy directly, and measure from which size on that is faster.
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "gc3/base/copy_bytes.h"
#include "gc3/base/mix64.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/sharing/single_copy.h"
#include "gc3/runtime/core/waiter.h"

namespace gc3::core {
namespace {

using Clock = std::chrono::steady_clock;
using Sizes = std::array<std::uint64_t, kCopySizes.size()>;

constexpr std::uint32_t kMostMeasuring = 16;  // ranks; more would need more memory, and give the same results
// Of a measurement for this job alone, and of one that later jobs use, too.
struct Effort {
  std::uint32_t rounds;
  std::chrono::milliseconds longest;
};
constexpr Effort kBrief{5, std::chrono::milliseconds(4)};
constexpr Effort kThorough{30, std::chrono::milliseconds(20)};
// A virtual machine's cores may have a common cache now, and none when the kept times were measured.
constexpr double kMostChange = 1.5;   // of copying against reading, before kept times are measured anew
constexpr double kUsualCheckNs = 25;  // of processors whose pause takes about a hundred cycles
constexpr std::uint64_t kBytes = std::accumulate(kCopySizes.begin(), kCopySizes.end(), std::uint64_t{});

bool all_say(const std::vector<Group::Payload>& said, std::size_t which) {
  return std::ranges::all_of(said, [which](const Group::Payload& p) { return p[which] != 0; });
}

std::uint64_t address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }
iovec place(std::uint64_t at, std::uint64_t bytes) { return {reinterpret_cast<void*>(at), bytes}; }

// Tries whether each rank can read and write the memory of the next one.
Status try_access(Group& group, SingleCopy& found, const Interrupted& interrupted) {
  const std::uint64_t own = mix64(group.rank());
  std::uint64_t written = 0;
  GC3_ASSIGN(const auto addresses, group.exchange({address(&own), address(&written)}, interrupted));
  const std::uint32_t next = (group.rank() + 1) % group.size();
  const pid_t process = group.process(next);
  std::uint64_t seen = 0;
  const iovec to = place(address(&seen), sizeof seen);
  const iovec from = place(addresses[next][0], sizeof seen);
  const bool reads = process_vm_readv(process, &to, 1, &from, 1, 0) == sizeof seen && seen == mix64(next);
  const iovec mine = place(address(&own), sizeof own);
  const iovec theirs = place(addresses[next][1], sizeof own);
  const bool writes = process_vm_writev(process, &mine, 1, &theirs, 1, 0) == sizeof own;
  GC3_ASSIGN(const auto tried, group.exchange({reads ? 1U : 0U, writes ? 1U : 0U}, interrupted));
  // The previous rank's write is checked after the exchange, because it is complete by then.
  const std::uint64_t came = std::atomic_ref(written).load(std::memory_order_relaxed);
  const bool right = came == mix64((group.rank() + group.size() - 1) % group.size());
  GC3_ASSIGN(const auto looked, group.exchange({right ? 1U : 0U}, interrupted));
  found.reads = all_say(tried, 0);
  found.writes = all_say(tried, 1) && all_say(looked, 0);
  return {};
}

// The measurements of one rank: a message of each size to the next rank, through shared memory and by reading.
class Probe {
 public:
  // `shared`: memory for one message of each of `ranks` ranks.
  Probe(std::uint8_t* shared, std::uint32_t rank, std::uint32_t ranks)
      : own_(shared + rank * kBytes), last_(shared + (rank + ranks - 1) % ranks * kBytes), from_(kBytes), to_(kBytes) {
    // Written with a value other than 0, so that the pages exist and no page fault is measured.
    std::ranges::fill(from_, std::uint8_t{1});
    std::ranges::fill(to_, std::uint8_t{1});
    put_.fill(std::numeric_limits<std::uint64_t>::max());
    take_ = read_ = put_;
  }

  std::uint64_t data() const { return address(from_.data()); }
  void put() {
    each([&](std::uint64_t at, std::uint64_t bytes) { copy_bytes(own_ + at, from_.data() + at, bytes); }, put_);
  }
  void take() {
    each([&](std::uint64_t at, std::uint64_t bytes) { copy_bytes(to_.data() + at, last_ + at, bytes); }, take_);
  }
  // False if the system has refused.
  bool read(pid_t process, std::uint64_t data) {
    bool good = true;
    const auto get = [&](std::uint64_t at, std::uint64_t bytes) {
      const iovec to = place(address(to_.data() + at), bytes);
      const iovec from = place(data + at, bytes);
      const ssize_t got = process_vm_readv(process, &to, 1, &from, 1, 0);
      good = good && got >= 0 && static_cast<std::uint64_t>(got) == bytes;
    };
    each(get, read_);
    return good;
  }
  CopyTime times(std::size_t size) const {
    return {shortened(put_[size]), shortened(take_[size]), shortened(read_[size])};
  }

 private:
  // The shortest time of all rounds, because other load can only make them longer.
  template <class Work>
  static void each(const Work& work, Sizes& best) {
    std::uint64_t at = kBytes;
    for (std::size_t i = best.size(); i-- != 0;) {  // large sizes first, so that the small ones are still in the caches
      at -= kCopySizes[i];
      const Clock::time_point start = Clock::now();
      work(at, kCopySizes[i]);
      const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
      best[i] = std::min(best[i], static_cast<std::uint64_t>(took.count()));
    }
  }
  static std::uint32_t shortened(std::uint64_t ns) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(ns, std::numeric_limits<std::uint32_t>::max()));
  }

  std::uint8_t* own_;
  std::uint8_t* last_;
  std::vector<std::uint8_t> from_;
  std::vector<std::uint8_t> to_;
  Sizes put_;
  Sizes take_;
  Sizes read_;
};

// Runs the rounds of the measurement. False if the system has refused a read on some rank.
Result<bool> run(Group& group, Probe* probe, std::uint32_t ranks, const Effort& effort,
                 const Interrupted& interrupted) {
  GC3_ASSIGN(const auto places, group.exchange({probe != nullptr ? probe->data() : 0}, interrupted));
  const std::uint32_t before = (group.rank() + ranks - 1) % ranks;
  const Clock::time_point until = Clock::now() + effort.longest;
  for (std::uint32_t round = 0; round < effort.rounds; ++round) {
    if (probe != nullptr) probe->put();
    GC3_CHECK(group.exchange({}, interrupted));
    bool good = true;
    if (probe != nullptr) {
      probe->take();
      good = probe->read(group.process(before), places[before][0]);
    }
    // This exchange also keeps the next round from changing data that others still read.
    GC3_ASSIGN(const auto said, group.exchange({good ? 1U : 0U, Clock::now() < until ? 1U : 0U}, interrupted));
    if (!all_say(said, 0)) return false;
    if (!all_say(said, 1)) break;
  }
  return true;
}

// Sets the times to the mean over the ranks, so that all ranks have the same.
Status gather(Group& group, const Probe* probe, std::uint32_t ranks, SingleCopy& found,
              const Interrupted& interrupted) {
  for (std::size_t i = 0; i < found.times.size(); ++i) {
    const CopyTime own = probe != nullptr ? probe->times(i) : CopyTime{};
    GC3_ASSIGN(const auto all, group.exchange({own.put, own.take, own.read}, interrupted));
    const auto mean = [&all, ranks](std::size_t which) {
      std::uint64_t sum = 0;
      for (std::uint32_t r = 0; r < ranks; ++r) sum += all[r][which];
      return static_cast<std::uint32_t>(sum / ranks);
    };
    found.times[i] = {mean(0), mean(1), mean(2)};
  }
  return {};
}

Status measure(Group& group, SingleCopy& found, const Effort& effort, const Interrupted& interrupted) {
  const std::uint32_t ranks = std::min(group.size(), kMostMeasuring);
  Extent extent;
  if (group.rank() == 0) {
    Result<Extent> made = group.job()->allocate(ranks * kBytes, "measuring how to copy");
    if (made.ok()) extent = made.value();
  }
  GC3_ASSIGN(const auto offers, group.exchange({extent.offset, extent.bytes}, interrupted));
  extent = {offers[0][0], offers[0][1]};
  if (extent.bytes == 0) return {};  // without memory nothing is measured
  std::optional<Probe> probe;
  if (group.rank() < ranks) {
    Result<Mapping> mapped = group.job()->map(extent);
    if (mapped.ok()) {
      const Mapping memory = mapped.value();
      memory.populate(0, memory.size());
      probe.emplace(memory.data(), group.rank(), ranks);
    }
  }
  const bool here = probe || group.rank() >= ranks;
  GC3_ASSIGN(const auto ready, group.exchange({here ? 1U : 0U}, interrupted));
  if (all_say(ready, 0)) {
    Probe* const own = probe ? &*probe : nullptr;
    GC3_ASSIGN(const bool measured, run(group, own, ranks, effort, interrupted));
    if (measured) {
      found.source = SingleCopy::Source::measured;
      GC3_CHECK(gather(group, own, ranks, found, interrupted));
    }
  }
  if (group.rank() == 0) group.job()->discard(extent);
  return {};
}

// Whether copying has become so much faster or slower against reading, for most sizes.
bool has_changed(const CopyTimes& kept, const CopyTimes& now) {
  std::size_t changed = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const double before = (1.0 * kept[i].put + kept[i].take) * now[i].read;
    const double after = (1.0 * now[i].put + now[i].take) * kept[i].read;
    changed += after > kMostChange * before || before > kMostChange * after ? 1 : 0;
  }
  return 2 * changed > kept.size();
}

// Nanoseconds of one check of a wait; the shortest of some, because other load can only make them longer.
double check_ns() {
  constexpr int kChecks = 500;
  double best = std::numeric_limits<double>::max();
  for (int turn = 0; turn < 3; ++turn) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kChecks; ++i) Waiter::relax();
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    best = std::min(best, took.count() / kChecks);
  }
  return best;
}

// What rank 0 knows about the thresholds before anything is measured.
void look_up(const ProbeWish& wish, const ProbeConditions& conditions, SingleCopy& found) {
  if (wish.mode == ProbeWish::Mode::given) {
    found.source = SingleCopy::Source::given;
    found.thresholds = wish.given.applied_to(found.thresholds);
    found.remark = "from '" + wish.file + "'";
  }
  if (wish.mode != ProbeWish::Mode::measure || wish.folder.empty()) return;
  const KeptProbe kept = read_kept(wish.folder, conditions);
  found.remark = kept.problem;
  if (!kept.found) return;
  found.source = SingleCopy::Source::kept;
  found.thresholds = kept.found->thresholds.applied_to({});
  found.measured_at = kept.found->measured;
  found.times = kept.found->times;
}

void keep_for_later(const std::string& folder, const ProbeConditions& conditions, SingleCopy& found) {
  ProbeText text{conditions, found.measured_at, {}, found.times};
  for (std::size_t i = 0; i < kThresholds.size(); ++i) {
    text.thresholds.values[i] = found.thresholds.*kThresholds[i].member;
  }
  const std::string problem = keep(folder, text);
  if (!problem.empty()) found.remark = "not kept: " + problem;
}

// Gives all ranks the result of rank 0.
Status share(Group& group, SingleCopy& found, const Interrupted& interrupted) {
  std::vector<std::uint64_t> words{static_cast<std::uint64_t>(found.source),
                                   static_cast<std::uint64_t>(found.measured_at)};
  for (const ThresholdInfo& info : kThresholds) words.push_back(found.thresholds.*info.member);
  for (const CopyTime& t : found.times) {
    words.push_back(std::uint64_t{t.put} << 32U | t.take);
    words.push_back(t.read);
  }
  constexpr std::size_t kWords = std::tuple_size_v<Group::Payload>;
  words.resize((words.size() + kWords - 1) / kWords * kWords);
  for (std::size_t at = 0; at < words.size(); at += kWords) {
    Group::Payload own{};
    std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(at), kWords, own.begin());
    GC3_ASSIGN(const auto all, group.exchange(own, interrupted));
    std::ranges::copy(all[0], words.begin() + static_cast<std::ptrdiff_t>(at));
  }
  std::size_t at = 0;
  found.source = static_cast<SingleCopy::Source>(words[at++]);
  found.measured_at = static_cast<std::int64_t>(words[at++]);
  for (const ThresholdInfo& info : kThresholds) found.thresholds.*info.member = words[at++];
  for (CopyTime& t : found.times) {
    t = {static_cast<std::uint32_t>(words[at] >> 32U), static_cast<std::uint32_t>(words[at]),
         static_cast<std::uint32_t>(words[at + 1])};
    at += 2;
  }
  return {};
}

// Collective, within a call. All ranks get the same result. Memory is read only if all ranks allow it; rank 0's wish
// for the probe counts.
Result<SingleCopy> try_single_copy(Group& group, const SingleCopyWish& wish, const Interrupted& interrupted) {
  using Mode = ProbeWish::Mode;
  SingleCopy found;
  const bool core_each = group.wait_policy().core_each();
  found.choose(core_each, kUsualCheckNs);
  if (group.size() == 1) return found;
  const ProbeConditions conditions = ProbeConditions::here(group.job()->cores(), group.size());
  const bool first = group.rank() == 0;
  if (first) look_up(wish.probe, conditions, found);
  const bool measures = found.source == SingleCopy::Source::assumed && wish.probe.mode != Mode::assume;
  const bool kept = found.source == SingleCopy::Source::kept;
  const bool keeps = !wish.probe.folder.empty();
  GC3_ASSIGN(
      const auto wishes,
      group.exchange({wish.allowed ? 1U : 0U, measures ? 1U : 0U, keeps ? 1U : 0U, kept ? 1U : 0U}, interrupted));
  if (all_say(wishes, 0)) GC3_CHECK(try_access(group, found, interrupted));
  bool all_measure = wishes[0][1] != 0;
  if (found.reads && wishes[0][3] != 0) {
    SingleCopy now;
    GC3_CHECK(measure(group, now, kBrief, interrupted));
    const bool anew = first && now.source == SingleCopy::Source::measured && has_changed(found.times, now.times);
    GC3_ASSIGN(const auto said, group.exchange({anew ? 1U : 0U}, interrupted));  // only rank 0 knows the kept times
    all_measure = said[0][0] != 0;
  }
  if (found.reads && all_measure) {
    GC3_CHECK(measure(group, found, wishes[0][2] != 0 ? kThorough : kBrief, interrupted));
    if (first && found.source == SingleCopy::Source::measured) {
      found.choose(core_each, check_ns());
      found.measured_at = std::time(nullptr);
      if (keeps) keep_for_later(wish.probe.folder, conditions, found);
    }
  }
  GC3_CHECK(share(group, found, interrupted));
  return found;
}

}  // namespace

// What was measured when these processes joined before is used if each of them wishes the same as then.
Status Group::probe(const Options& options, bool again, const Interrupted& interrupted) {
  const SingleCopyWish wish{options.single_copy, options.probe};
  if (again) {
    const std::optional<Job::Probed> before = job_->probed();
    const bool same = before && before->wish == wish && before->ranks == size();
    GC3_ASSIGN(const auto all, exchange({same ? 1U : 0U}, interrupted));
    if (std::ranges::all_of(all, [](const Payload& p) { return p[0] == 1; })) {
      single_copy_ = before->found;
      return {};
    }
  }
  GC3_ASSIGN(single_copy_, try_single_copy(*this, wish, interrupted));
  // Not what some of the processes have measured, because the next ones to ask may be others.
  if (!again) job_->set_probed({single_copy_, wish, size()});
  return {};
}

}  // namespace gc3::core
