// A priority queue of threadblocks by time, then by threadblock, so that the order is deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gc3/sim/machine.h"

namespace gc3::sim {

// Time and threadblock in one number, so that comparing two events is one subtraction without a branch.
__extension__ typedef unsigned __int128 EventKey;

struct Event {
  EventKey key = 0;

  Event() = default;
  Event(Time time, std::uint64_t turn) : key(static_cast<EventKey>(time) << 64U | turn) {}
  Time time() const { return static_cast<Time>(key >> 64U); }
  std::uint64_t turn() const { return static_cast<std::uint64_t>(key); }
  bool before(const Event& o) const { return key < o.key; }
};

// A heap with four children per node: half as deep as a binary one, and the children share a cache line. Taking the
// first event leaves a hole at the root, which the next push usually fills: then one pass down does the work of two.
class EventQueue {
 public:
  void reserve(std::size_t events) { heap_.reserve(events); }
  std::size_t size() const { return heap_.size() - static_cast<std::size_t>(hole_); }
  bool empty() const { return size() == 0; }

  const Event& first() {
    fill();
    return heap_[0];
  }
  Event pop() {
    fill();
    hole_ = true;
    return heap_[0];
  }
  void push(Event e) {
    if (hole_) {
      hole_ = false;
      sink(e);
      return;
    }
    std::size_t at = heap_.size();
    heap_.push_back(e);
    for (std::size_t up; at != 0 && e.before(heap_[up = (at - 1) / kChildren]); at = up) heap_[at] = heap_[up];
    heap_[at] = e;
  }

 private:
  static constexpr std::size_t kChildren = 4;

  void fill() {
    if (!hole_) return;
    hole_ = false;
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
  }
  // Puts `e` at the root's place.
  void sink(Event e) {
    const std::size_t size = heap_.size();
    std::size_t at = 0;
    for (std::size_t child = 1; child < size; child = at * kChildren + 1) {
      std::size_t least = child;
      const std::size_t end = child + kChildren < size ? child + kChildren : size;
      for (std::size_t c = child + 1; c < end; ++c) {
        if (heap_[c].before(heap_[least])) least = c;
      }
      if (!heap_[least].before(e)) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = e;
  }

  std::vector<Event> heap_;
  bool hole_ = false;
};

// Events of one time in rounds: first those that were known before, then those that became known meanwhile.
class Rounds {
 public:
  void reserve(std::size_t events) { queue_.reserve(events); }
  std::size_t size() const { return queue_.size() + next_.size(); }
  bool empty() const { return queue_.empty(); }
  const Event& first() { return queue_.first(); }
  // The event whose turn it is; `end` says that all that it makes known has been pushed. Without `rounded`, what it
  // makes known at its own time has its turn among the others.
  Event begin(bool rounded) {
    const Event e = queue_.pop();
    now_ = rounded ? e.time() : -1;
    return e;
  }
  void push(Event e) {
    if (e.time() == now_) {
      next_.push_back(e);
    } else {
      queue_.push(e);
    }
  }
  void end() {
    if (!next_.empty() && (queue_.empty() || queue_.first().time() != now_)) {
      for (const Event e : next_) queue_.push(e);
      next_.clear();
    }
    now_ = -1;
  }

 private:
  EventQueue queue_;
  std::vector<Event> next_;  // the next round of the time `now_`
  Time now_ = -1;            // of the event whose turn it is; -1: none is, or it is not rounded
};

}  // namespace gc3::sim
