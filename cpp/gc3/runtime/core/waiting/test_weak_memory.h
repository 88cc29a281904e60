// A simulation of global memory under the memory model of PTX (PTX ISA, "Memory Consistency Model"), in an operational
// form: a load may return any store that the model does not forbid.
//
// A location has four bytes and a history of stores, its coherence order. A thread is a lane of a warp. It knows the
// stores that precede it in causality order. The rules, each with the part of the model that it represents:
// - A load never returns a store that is older than one that its thread knows at this location. (Causality, which
//   includes program order.)
// - A strong load never returns a store that is older than the result of an earlier strong load by its warp at this
//   location. (Sequential consistency per location. PTX has it per thread; but no two lanes of a warp load the same
//   line or counter.)
// - A store comes after the stores to this location that its thread knows or has loaded. It may come before others.
//   (Coherence.)
// - A thread that loads with acquire a value stored with release knows all stores that the storing thread knew.
// (Release
//   patterns synchronize with acquire patterns.)
// - A fence acquires the results of strong loads before it, and strong stores after it release. (The same, for patterns
//   that begin or end with a fence.)
// - After a barrier, each thread knows what any of them knew. (bar.sync and bar.warp.sync synchronize.)
// - A strong access of 8 bytes is one access, and one of 16 bytes is two. A plain access is one for each location.
//   (Atomicity holds for morally strong accesses. A vector access is a set of scalar accesses in any order.)
// - The launch of a rank knows all stores of its earlier launches, and none of other ranks. (The order of a stream.)
// `Assumptions` has properties beyond PTX, each of which can be switched off.
// Weaker than PTX: the result of a strong load is not passed on to threads that synchronize later; a strong store after
// a release store does not release; there is no fence.sc. Stronger than PTX, so not tested here: the accesses of a
// thread are executed in program order, so no load returns a value that is stored only because of a later store of the
// same thread (load buffering); and all scopes are wide enough.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gc3/base/mix64.h"

namespace gc3::weak {

inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::uint32_t kLineBytes = 128;

struct Assumptions {
  std::uint32_t word = 8;   // bytes that a strong access moves as one: 8 in PTX, 4 is weaker
  bool whole_lines = true;  // a line of 128 bytes that a converged warp stores by one statement is visible as a whole
  bool ordering_votes = true;  // when a warp has seen a piece of a line, no lane loads older pieces after a vote
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>((mix64(++state_) >> 32U) * n >> 32U); }
  bool chance(std::uint32_t of_256) { return below(256) < of_256; }

 private:
  std::uint64_t state_;
};

enum class Access { plain, strong };

class Memory {
 public:
  Memory(Random& random, const Assumptions& assumptions, std::uint32_t staleness)
      : random_(random), assumptions_(assumptions), staleness_(staleness) {}

  // Adds global memory; `blank`: it has no contents yet, so loads are errors.
  void add(void* base, std::size_t bytes, bool blank) {
    ranges_.push_back({static_cast<std::uint8_t*>(base), locations(), bytes / 4});
    initial_.resize(initial_.size() + bytes / 4);
    blank_.resize(initial_.size(), blank);
    newest_.resize(initial_.size());
  }

  // To be called around launches: `begin` moves the contents of the memory into the model, and `end` stores the last
  // values back. In between, accesses that bypass the model read rubbish.
  void begin(std::uint32_t warps) {
    const auto none = std::make_shared<const View>(warps * kLanes);
    threads_.assign(warps * kLanes, Thread{none, 0, {}});
    seen_.assign(warps, std::vector<std::uint32_t>(locations()));
    observed_.assign(warps, {});
    std::fill(newest_.begin(), newest_.end(), 0U);
    stores_.assign(1, Store{});
    releases_.assign(1, Release{});
    now_ = 0;
    for (const Range& r : ranges_) {
      std::memcpy(&initial_[r.first], r.base, r.count * 4);
      std::memset(r.base, 0xee, r.count * 4);
    }
  }
  void end() {
    for (std::size_t l = 0; l < newest_.size(); ++l) {
      if (newest_[l] != 0) initial_[l] = stores_[newest_[l]].value;
    }
    for (const Range& r : ranges_) std::memcpy(r.base, &initial_[r.first], r.count * 4);
  }

  void load(std::uint32_t thread, Access access, const void* at, void* to, std::uint32_t bytes) {
    const std::uint32_t first = locate(at, bytes);
    const std::uint32_t unit = unit_of(access, bytes);
    std::uint32_t words[4];
    for (std::uint32_t i = 0; i < bytes / 4; i += unit) load_unit(thread, access, first + i, {words + i, unit});
    std::memcpy(to, words, bytes);
  }
  void store(std::uint32_t thread, Access access, void* at, const void* from, std::uint32_t bytes) {
    const std::uint32_t first = locate(at, bytes);
    const std::uint32_t unit = unit_of(access, bytes);
    std::uint32_t words[4];
    std::memcpy(words, from, bytes);
    for (std::uint32_t i = 0; i < bytes / 4; i += unit) {
      store_unit(thread, access, first + i, {words + i, unit}, access == Access::plain ? 0 : threads_[thread].fence);
    }
  }
  void store_release(std::uint32_t thread, void* at, std::uint64_t value) {
    std::uint32_t words[2];
    std::memcpy(words, &value, sizeof value);
    const std::uint32_t first = locate(at, sizeof value);
    ++now_;  // includes the store itself
    const std::uint32_t handed_on = release(thread);
    --now_;
    store_unit(thread, Access::strong, first, words, handed_on);
  }
  // Stores a whole line; each lane from `first_lane` on has stored 16 bytes of it.
  void store_line(std::uint32_t first_lane, void* at, std::span<const std::uint32_t> words) {
    const std::uint32_t first = locate(at, kLineBytes);
    const auto unit = static_cast<std::uint32_t>(stores_.size());
    const bool below = random_.chance(kBelow);
    ++now_;
    for (std::uint32_t i = 0; i < words.size(); ++i) {
      const std::uint32_t thread = first_lane + i / 4;
      insert(below, {words[i], now_, thread, 0, first + i, unit, kLineBytes / 4, threads_[thread].fence});
    }
  }
  std::uint64_t load_acquire(std::uint32_t thread, const void* at) {
    std::vector<std::uint32_t>& observed = threads_[thread].observed;
    std::vector<std::uint32_t> before;  // releases seen at other locations, which this access does not acquire
    before.swap(observed);
    std::uint64_t value = 0;
    load(thread, Access::strong, at, &value, sizeof value);
    acquire(thread);
    before.swap(observed);
    return value;
  }
  void fence(std::uint32_t thread) {
    acquire(thread);
    threads_[thread].fence = release(thread);
  }
  // Stores 8 bytes if they have a value. It sees the newest store, as the operations of C++ do that read and write at
  // once, and orders nothing.
  bool exchange_if(std::uint32_t thread, void* at, std::uint64_t is, std::uint64_t value) {
    const std::uint32_t first = locate(at, sizeof value);
    std::uint32_t words[2];
    for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint32_t id = newest_[first + i];
      words[i] = id == 0 ? initial_[first + i] : stores_[id].value;
      note(thread, first + i, id);
    }
    std::uint64_t found = 0;
    std::memcpy(&found, words, sizeof found);
    if (found != is) return false;
    std::memcpy(words, &value, sizeof value);
    const auto unit = static_cast<std::uint32_t>(stores_.size());
    ++now_;
    for (std::uint32_t i = 0; i < 2; ++i) insert(false, {words[i], now_, thread, 0, first + i, unit, 2, 0});
    return true;
  }
  // Adds to 8 bytes, with acquire and release; without them it orders nothing. Like each operation that reads and
  // writes at once it continues what the store that it has read releases.
  std::uint64_t add(std::uint32_t thread, void* at, std::uint64_t value, bool acquires, bool releases) {
    const std::uint64_t found = read_newest(thread, at, acquires);
    const std::uint64_t sum = found + value;
    std::uint32_t words[2];
    std::memcpy(words, &sum, sizeof sum);
    replace(thread, at, words, releases);
    return found;
  }
  // Stores 8 bytes with acquire if they have a value.
  bool exchange(std::uint32_t thread, void* at, std::uint64_t is, std::uint64_t value, bool acquires) {
    if (read_newest(thread, at, acquires) != is) return false;
    std::uint32_t words[2];
    std::memcpy(words, &value, sizeof value);
    replace(thread, at, words, false);
    return true;
  }
  // A barrier: all of these threads know what any of them knows.
  void join(std::uint32_t first, std::uint32_t count) {
    auto all = std::make_shared<View>(*threads_[first].known);
    const View* last = threads_[first].known.get();
    for (std::uint32_t t = first + 1; t < first + count; ++t) {
      const View* const view = threads_[t].known.get();
      if (view == last) continue;
      merge(*all, *view);
      last = view;
    }
    for (std::uint32_t t = first; t < first + count; ++t) (*all)[t] = now_;
    for (std::uint32_t t = first; t < first + count; ++t) threads_[t].known = all;
  }
  // A vote of the lanes of a warp.
  void vote(std::uint32_t warp) {
    std::vector<std::uint32_t>& observed = observed_[warp];
    for (const std::uint32_t unit : observed) {
      for (std::uint32_t id = unit; id < unit + stores_[unit].size; ++id) {
        std::uint32_t& seen = seen_[warp][stores_[id].location];
        if (newer(id, seen, stores_[id].location)) seen = id;
      }
    }
    observed.clear();
  }

  // The first error, or nothing: an access to data that is not ordered after the last store to its location, or a load
  // from a location without contents.
  const std::string& report() const { return report_; }

 private:
  using View = std::vector<std::uint32_t>;  // by thread: the time of its last store that is known
  struct Range {
    std::uint8_t* base;
    std::uint32_t first;
    std::size_t count;
  };
  struct Store {
    std::uint32_t value = 0;
    std::uint32_t time = 0;
    std::uint32_t thread = 0;
    std::uint32_t older = 0;  // the next older one in the history; 0: the initial contents
    std::uint32_t location = 0;
    std::uint32_t unit = 0;  // the first store of its unit; a unit's stores are consecutive here and in memory
    std::uint32_t size = 0;
    std::uint32_t release = 0;  // the view that it releases; 0: none
  };
  struct Release {
    std::shared_ptr<const View> known;
    std::uint32_t time = 0;  // of the thread's own stores that are included
  };
  struct Thread {
    std::shared_ptr<const View> known;
    std::uint32_t fence = 0;              // the view that its strong stores release
    std::vector<std::uint32_t> observed;  // releases that strong loads have seen and no fence has acquired yet
  };

  static constexpr std::uint32_t kBelow = 64;  // of 256: how often a store is inserted at the oldest allowed position

  // The number of locations that an access moves as one.
  std::uint32_t unit_of(Access access, std::uint32_t bytes) const {
    return access == Access::plain ? 1 : std::min(assumptions_.word, bytes) / 4;
  }
  std::uint32_t locations() const { return static_cast<std::uint32_t>(initial_.size()); }
  std::uint32_t locate(const void* at, std::uint32_t bytes) {
    const auto* const byte = static_cast<const std::uint8_t*>(at);
    for (const Range& r : ranges_) {
      if (byte >= r.base && byte + bytes <= r.base + 4 * r.count) {
        return r.first + static_cast<std::uint32_t>(byte - r.base) / 4;
      }
    }
    wrong("an access outside global memory", 0);
    return 0;
  }
  void wrong(const char* what, std::uint32_t thread) {
    if (!report_.empty()) return;
    report_ = std::string(what) + ", warp " + std::to_string(thread / kLanes) + " lane " +
              std::to_string(thread % kLanes) + " after " + std::to_string(now_) + " stores";
  }

  std::uint64_t read_newest(std::uint32_t thread, const void* at, bool acquires) {
    const std::uint32_t first = locate(at, sizeof(std::uint64_t));
    std::vector<std::uint32_t>& observed = threads_[thread].observed;
    std::vector<std::uint32_t> before;
    before.swap(observed);
    std::uint32_t words[2];
    for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint32_t id = newest_[first + i];
      words[i] = id == 0 ? initial_[first + i] : stores_[id].value;
      note(thread, first + i, id);
    }
    if (acquires) acquire(thread);
    before.swap(observed);
    std::uint64_t found = 0;
    std::memcpy(&found, words, sizeof found);
    return found;
  }
  void replace(std::uint32_t thread, const void* at, std::span<const std::uint32_t> words, bool releases) {
    const std::uint32_t first = locate(at, sizeof(std::uint64_t));
    const auto unit = static_cast<std::uint32_t>(stores_.size());
    const std::uint32_t last = newest_[first];
    ++now_;
    const std::uint32_t handed_on = releases ? release(thread) : last == 0 ? 0 : stores_[last].release;
    for (std::uint32_t i = 0; i < 2; ++i) insert(false, {words[i], now_, thread, 0, first + i, unit, 2, handed_on});
  }

  bool knows(std::uint32_t thread, std::uint32_t id) const {
    const Store& s = stores_[id];
    return id == 0 || s.thread == thread || s.time <= (*threads_[thread].known)[s.thread];
  }
  // Whether no older store may be loaded.
  bool settled(std::uint32_t thread, std::uint32_t location, std::uint32_t id) const {
    return id == seen_[thread / kLanes][location] || knows(thread, id);
  }
  bool newer(std::uint32_t a, std::uint32_t b, std::uint32_t location) const {
    if (a == b) return false;
    std::uint32_t id = newest_[location];
    while (id != a && id != b) id = stores_[id].older;
    return id == a;
  }

  void load_unit(std::uint32_t thread, Access access, std::uint32_t first, std::span<std::uint32_t> to) {
    std::uint32_t ids[2];
    for (std::uint32_t i = 0; i < to.size(); ++i) {
      const std::uint32_t location = first + i;
      std::uint32_t& id = ids[i];
      id = newest_[location];
      if (access == Access::plain) {
        if (!knows(thread, id)) wrong("a load is not ordered after the last store to its location", thread);
        if (id == 0 && blank_[location]) wrong("a load from a location to which nothing was stored", thread);
      }
      while (!settled(thread, location, id) && random_.chance(staleness_)) id = stores_[id].older;
    }
    // If a load sees one piece of a unit, it sees the other pieces or later stores.
    for (bool moved = to.size() > 1; moved;) {
      moved = false;
      for (std::uint32_t i = 0; i < to.size(); ++i) {
        const Store& seen = stores_[ids[i]];
        for (std::uint32_t k = 0; k < to.size() && seen.size > 1; ++k) {
          const std::uint32_t piece = seen.unit + first + k - stores_[seen.unit].location;
          if (piece < seen.unit || piece >= seen.unit + seen.size || !newer(piece, ids[k], first + k)) continue;
          ids[k] = piece;
          moved = true;
        }
      }
    }
    for (std::uint32_t i = 0; i < to.size(); ++i) {
      const Store& s = stores_[ids[i]];
      to[i] = ids[i] == 0 ? initial_[first + i] : s.value;
      if (access == Access::strong) note(thread, first + i, ids[i]);
    }
  }
  void note(std::uint32_t thread, std::uint32_t location, std::uint32_t id) {
    const Store& s = stores_[id];
    std::vector<std::uint32_t>& observed = threads_[thread].observed;
    if (s.release != 0 && std::find(observed.begin(), observed.end(), id) == observed.end()) observed.push_back(id);
    std::uint32_t& seen = seen_[thread / kLanes][location];
    if (id == seen) return;
    seen = id;
    std::vector<std::uint32_t>& units = observed_[thread / kLanes];
    if (assumptions_.ordering_votes && s.size * 4 == kLineBytes && (units.empty() || units.back() != s.unit)) {
      units.push_back(s.unit);
    }
  }

  void store_unit(std::uint32_t thread, Access access, std::uint32_t first, std::span<const std::uint32_t> from,
                  std::uint32_t handed_on) {
    const auto unit = static_cast<std::uint32_t>(stores_.size());
    const auto size = static_cast<std::uint32_t>(from.size());
    const bool below = random_.chance(kBelow);
    ++now_;
    for (std::uint32_t i = 0; i < size; ++i) {
      if (access == Access::plain && !knows(thread, newest_[first + i])) {
        wrong("a store is not ordered after the last store to its location", thread);
      }
      insert(below, {from[i], now_, thread, 0, first + i, unit, size, handed_on});
    }
  }
  // Inserts at the top of the history, or directly above the stores that must stay below.
  void insert(bool below, Store store) {
    std::uint32_t* place = &newest_[store.location];
    while (below && !settled(store.thread, store.location, *place)) place = &stores_[*place].older;
    store.older = *place;
    *place = static_cast<std::uint32_t>(stores_.size());
    stores_.push_back(store);
  }

  std::uint32_t release(std::uint32_t thread) {
    const Thread& t = threads_[thread];
    const Release& last = releases_.back();
    if (last.known != t.known || last.time != now_) releases_.push_back({t.known, now_});
    return static_cast<std::uint32_t>(releases_.size() - 1);
  }
  void acquire(std::uint32_t thread) {
    Thread& t = threads_[thread];
    for (const std::uint32_t id : t.observed) learn(t, stores_[id]);
    t.observed.clear();
  }
  void learn(Thread& t, const Store& s) {
    const Release& r = releases_[s.release];
    if ((*t.known)[s.thread] > r.time) return;  // a later release or barrier has already passed on this view
    auto known = std::make_shared<View>(*t.known);
    merge(*known, *r.known);
    (*known)[s.thread] = std::max((*known)[s.thread], r.time);
    t.known = std::move(known);
  }
  static void merge(View& into, const View& other) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
  }

  Random& random_;
  Assumptions assumptions_;
  std::uint32_t staleness_;  // of 256: how often a load continues to an older store
  std::vector<Range> ranges_;
  std::vector<std::uint32_t> initial_;  // by location: the initial contents
  std::vector<bool> blank_;             // by location: whether it has no initial contents
  std::vector<std::uint32_t> newest_;
  std::vector<Store> stores_;  // the first one represents the initial contents
  std::vector<Release> releases_;
  std::vector<Thread> threads_;
  std::vector<std::vector<std::uint32_t>> seen_;      // by warp and location: the newest store that a strong load got
  std::vector<std::vector<std::uint32_t>> observed_;  // by warp: lines of which it has seen a piece since its last vote
  std::uint32_t now_ = 0;                             // units stored so far
  std::string report_;
};

}  // namespace gc3::weak
