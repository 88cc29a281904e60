#include "gc3/compiler/passes/reuse_scratch.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "gc3/base/interrupt.h"
#include "gc3/compiler/passes/number_threadblocks.h"

namespace gc3::compiler {
namespace {

// What a place in scratch holds until another operation overwrites it. Values that an operation reads or writes
// together must be adjacent: they are a group, and its first value also stands for all of it.
struct Held {
  std::uint32_t group;  // a value of its group nearer to the first one, or itself
  std::uint32_t rank;
  std::uint32_t place;  // in the scratch of the rank
  std::uint32_t begin;  // of the group: its places,
  std::uint32_t end;
  std::uint32_t first;  // and the operations that use it
  std::uint32_t last;
  std::uint32_t moved;  // where its places begin after this pass
};

// The free places of a rank, as ranges that do not touch, by their begin.
class Gaps {
 public:
  // How a range is chosen: the next one after the last that was taken, or the smallest.
  enum class Choice : std::uint8_t { next, tightest };
  // The first `enough` places are taken before one is taken again.
  Gaps(Choice choice, std::uint32_t enough) : choice_(choice), enough_(enough) {}

  std::uint32_t take(std::uint32_t count) {
    if (count <= enough_ && size_ <= enough_ - count) {
      size_ += count;
      return size_ - count;
    }
    auto gap = choice_ == Choice::next ? next(count) : tightest(count);
    if (gap == free_.end()) return grown(count);
    const auto [begin, end] = *gap;
    free_.erase(gap);
    if (end - begin > count) free_.emplace(begin + count, end);
    hand_ = begin + count;
    return begin;
  }

  void give_back(std::uint32_t begin, std::uint32_t end) {
    auto after = free_.lower_bound(begin);
    if (after != free_.begin()) {
      const auto before = std::prev(after);
      if (before->second == begin) {
        begin = before->first;
        free_.erase(before);
      }
    }
    if (after != free_.end() && after->first == end) {
      end = after->second;
      free_.erase(after);
    }
    free_.emplace(begin, end);
  }

  std::uint32_t size() const { return size_; }

 private:
  using Free = std::map<std::uint32_t, std::uint32_t>;

  Free::iterator next(std::uint32_t count) {
    const auto enough = [count](const auto& gap) { return gap.second - gap.first >= count; };
    const auto here = free_.lower_bound(hand_);
    const auto found = std::find_if(here, free_.end(), enough);
    if (found != free_.end()) return found;
    const auto wrapped = std::find_if(free_.begin(), here, enough);
    return wrapped == here ? free_.end() : wrapped;
  }
  Free::iterator tightest(std::uint32_t count) {
    auto best = free_.end();
    for (auto gap = free_.begin(); gap != free_.end(); ++gap) {
      const std::uint32_t length = gap->second - gap->first;
      if (length >= count && (best == free_.end() || length < best->second - best->first)) best = gap;
    }
    return best;
  }
  // The range at the end, together with free places before it.
  std::uint32_t grown(std::uint32_t count) {
    std::uint32_t begin = size_;
    if (!free_.empty() && std::prev(free_.end())->second == size_) {
      begin = std::prev(free_.end())->first;
      free_.erase(std::prev(free_.end()));
    }
    size_ = hand_ = begin + count;
    return begin;
  }

  Choice choice_;
  std::uint32_t enough_;
  Free free_;
  std::uint32_t size_ = 0;
  std::uint32_t hand_ = 0;
};

class Reuser {
 public:
  Reuser(const Trace& trace, std::uint32_t enough)
      : trace_(trace), enough_(enough), slots_(trace.extents), value_of_(slots_.size(), kNone) {
    base_.resize(trace.extents.size());
    for (std::uint32_t r = 0; r < trace.ranks(); ++r) {
      std::uint32_t used = 0;
      for (std::size_t b = kScratch; b < trace.extents.size(); ++b) {
        base_[b].push_back(used);
        used += trace.extents[b][r];
      }
    }
  }

  Trace run() {
    find_values();
    std::vector<std::vector<std::uint32_t>> groups(trace_.ranks());  // by rank, in the order of their first operations
    for (std::uint32_t v = 0; v < values_.size(); ++v) {
      if (group(v) == v) groups[values_[v].rank].push_back(v);
    }
    Trace out = trace_;
    for (std::uint32_t r = 0; r < trace_.ranks(); ++r) {
      for (std::size_t b = kScratch; b < out.extents.size(); ++b) out.extents[b][r] = 0;
      out.extents[kScratch][r] = place(groups[r]);
    }
    Breath breathe;
    for (std::size_t i = 0; i < out.ops.size(); ++i) {
      breathe();
      ChunkOp& op = out.ops[i];
      for (auto [range, value] :
           {std::pair{&op.src, ends_[i].src}, {&op.dst, ends_[i].dst}, {&op.local, ends_[i].local}}) {
        if (value != kNone) *range = {range->rank, moved(value), kScratch};
      }
    }
    return out;
  }

 private:
  // The first value of each end of an operation; kNone: the end is not in scratch.
  struct Ends {
    std::uint32_t src;
    std::uint32_t dst;
    std::uint32_t local;
  };

  void find_values() {
    ends_.reserve(trace_.ops.size());
    Breath breathe;
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      breathe();
      const ChunkOp& op = trace_.ops[i];
      Ends ends{use(op.src, op.count, i), kNone, kNone};
      const bool adds = op.kind == OpKind::reduce;
      if (adds) ends.local = use(op.local, op.count, i);
      if (!adds || op.local != op.dst) overwrite(op.dst, op.count);
      ends.dst = use(op.dst, op.count, i);
      if (!adds) ends.local = ends.dst;
      ends_.push_back(ends);
    }
  }
  void overwrite(const Range& range, std::uint32_t count) {
    if (range.buffer < kScratch) return;
    const auto first = value_of_.begin() + static_cast<std::ptrdiff_t>(slots_.slot(range));
    std::fill_n(first, count, kNone);
  }
  // Joins the values of a range, which this operation uses together and is the last so far to use; returns the first.
  std::uint32_t use(const Range& range, std::uint32_t count, std::uint32_t op) {
    if (range.buffer < kScratch) return kNone;
    const std::uint64_t first = slots_.slot(range);
    const std::uint32_t place = base_[range.buffer][range.rank] + range.index;
    for (std::uint32_t c = 0; c < count; ++c) {
      std::uint32_t& value = value_of_[first + c];
      if (value == kNone) {
        value = static_cast<std::uint32_t>(values_.size());
        values_.push_back({value, range.rank, place + c, place + c, place + c + 1, op, op, 0});
      }
      join(value_of_[first], value);
    }
    values_[group(value_of_[first])].last = op;
    return value_of_[first];
  }
  std::uint32_t group(std::uint32_t value) {
    while (values_[value].group != value) {
      values_[value].group = values_[values_[value].group].group;
      value = values_[value].group;
    }
    return value;
  }
  void join(std::uint32_t a, std::uint32_t b) {
    a = group(a);
    b = group(b);
    if (a == b) return;
    Held& first = values_[std::min(a, b)];  // values have the order of their first operations
    Held& other = values_[std::max(a, b)];
    other.group = first.group;
    first.begin = std::min(first.begin, other.begin);
    first.end = std::max(first.end, other.end);
  }

  // Places groups, and returns the number of places that they need; gaps never make it more than before.
  std::uint32_t place(const std::vector<std::uint32_t>& groups) {
    constexpr auto kNext = Gaps::Choice::next;
    std::pair best{kNone, std::pair{kNext, enough_}};
    for (const auto& how : {std::pair{kNext, enough_}, {kNext, 0U}, {Gaps::Choice::tightest, 0U}}) {
      const std::uint32_t size = place(groups, how.first, how.second);
      if (size <= enough_) return size;
      if (size < best.first) best = {size, how};
    }
    std::uint32_t end = 0;
    for (const std::uint32_t g : groups) {
      values_[g].moved = values_[g].begin;
      end = std::max(end, values_[g].end);
    }
    return end <= best.first ? end : place(groups, best.second.first, best.second.second);
  }
  std::uint32_t place(const std::vector<std::uint32_t>& groups, Gaps::Choice choice, std::uint32_t enough) {
    using Use = std::pair<std::uint32_t, std::uint32_t>;  // the last operation of a group, and the group
    std::priority_queue<Use, std::vector<Use>, std::greater<>> in_use;
    Gaps gaps(choice, enough);
    for (const std::uint32_t g : groups) {
      Held& value = values_[g];
      for (; !in_use.empty() && in_use.top().first < value.first; in_use.pop()) {
        const Held& done = values_[in_use.top().second];
        gaps.give_back(done.moved, done.moved + (done.end - done.begin));
      }
      value.moved = gaps.take(value.end - value.begin);
      in_use.emplace(value.last, g);
    }
    return gaps.size();
  }
  std::uint32_t moved(std::uint32_t value) {
    const Held& all = values_[group(value)];
    return all.moved + (values_[value].place - all.begin);
  }

  const Trace& trace_;
  std::uint32_t enough_;
  SlotMap slots_;
  std::vector<std::vector<std::uint32_t>> base_;  // [buffer][rank]: where the buffer begins in the scratch of the rank
  std::vector<std::uint32_t> value_of_;           // per slot: what it holds
  std::vector<Held> values_;
  std::vector<Ends> ends_;  // by operation
};

}  // namespace

Trace reuse_scratch(const Trace& trace, std::uint32_t enough) {
  return is_manual(trace) || trace.collective.has_tensors() ? trace : Reuser(trace, enough).run();
}

}  // namespace gc3::compiler
