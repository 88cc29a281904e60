// What happens before what in the calls of a direct program: a graph of events, and the accesses that it has to order.
//
// There are two orders. "Visible": what the first event stored is seen by the second. "Done": the first event has been
// executed when the second begins; enough for a store to a place that has been read, and no more. Every edge of the
// first is one of the second. Relaxed signals and packets give the second only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "gc3/base/ids.h"

namespace gc3::verify::direct {

// A number of an event. Events are made in an order that extends both orders.
using Event = std::uint32_t;

struct Made {              // where an event belongs
  std::uint32_t call = 0;  // from 0
  std::uint32_t rank = 0;
  std::uint32_t tb = kNone;  // in Program::threadblocks; kNone: the code around the calls
  std::uint32_t step = 0;    // in the threadblock
  std::uint32_t phase = 0;   // syncs of the threadblock before it
  bool proxy = false;        // the event of an asynchronous move, which its threadblock does not wait for
};

class Order {
 public:
  Event add(const Made& made) {
    made_.push_back(made);
    first_.push_back(edges_.size());
    return static_cast<Event>(made_.size() - 1);
  }
  // To the newest event. `before` may be kNone.
  void visible(Event before) { edge(before, 0); }
  void done(Event before) { edge(before, kDoneOnly); }

  const Made& made(Event e) const { return made_[e]; }
  std::size_t events() const { return made_.size(); }

  // Two accesses to a place, at least one of which is a store. `earlier` was made first.
  struct Pair {
    Event earlier;
    Event later;
    std::uint32_t place;
    bool stored;     // by `earlier`
    bool stores;     // `later` does
    bool done_only;  // it is enough that `earlier` is done
  };
  void expect(const Pair& pair) {
    if (pair.earlier != pair.later && !at_home(pair)) pairs_.push_back(pair);
  }

  struct Race {
    Pair pair;
    bool done;  // `earlier` is done before `later`, but what it stored need not be visible
  };
  // Of the expected pairs those that are not ordered, by their events, at most one for two steps.
  std::vector<Race> races(std::size_t limit);
  // Whether it is the first that is asked about of its two steps, whatever the calls and places.
  bool first_of_steps(const Pair& pair) {
    const Made& a = made_[pair.earlier];
    const Made& b = made_[pair.later];
    return told_.insert({a.rank, a.tb, a.step, pair.stored, b.rank, b.tb, b.step, pair.stores}).second;
  }

 private:
  static constexpr std::uint32_t kDoneOnly = 1U << 31U;

  void edge(Event before, std::uint32_t mark) {
    if (before != kNone) edges_.push_back(before | mark);
  }
  // Whether the rank itself orders them: a later call, or the same threadblock after a sync.
  bool at_home(const Pair& pair) const {
    const Made& a = made_[pair.earlier];
    const Made& b = made_[pair.later];
    if (a.rank != b.rank || a.proxy || b.proxy) return false;
    return a.call < b.call || a.tb == kNone || b.tb == kNone || (a.tb == b.tb && a.phase < b.phase);
  }
  void judge(std::span<const Pair> pairs, std::vector<Race>& found);

  std::vector<Made> made_;
  std::vector<std::size_t> first_;    // per event: where its predecessors begin in edges_
  std::vector<std::uint32_t> edges_;  // events, with kDoneOnly
  std::vector<Pair> pairs_;
  std::set<std::array<std::uint32_t, 8>> told_;  // of pairs: ranks, threadblocks, steps and accesses
};

}  // namespace gc3::verify::direct
