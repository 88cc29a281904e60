// The rounds of the steps of a schedule, and how few steps hops need at least.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/synth/load.h"
#include "gc3/synth/place.h"

namespace gc3::synth {

// Hops, what they load, and how far they are from the ends of their ways.
struct Work {
  Work(const std::vector<Hop>& hops, const std::vector<std::vector<std::uint32_t>>& bounds_of,
       const std::vector<Bandwidth>& bandwidths);

  const std::vector<Hop>& hops;
  const std::vector<Bandwidth>& bandwidths;
  std::vector<std::vector<Load>> loads;           // of each edge
  std::vector<Amount> load;                       // that all hops put on each bound
  std::vector<Amount> largest;                    // the most that one of them does
  std::vector<std::vector<std::uint32_t>> after;  // the hops that wait for each
  std::vector<std::uint32_t> head;                // the longest way before each hop, in hops
  std::vector<std::uint32_t> tail;                // and after it
  std::uint32_t depth = 0;                        // the hops of the longest way
};

// The rounds of each step: `brief`, but `full` in `many` steps after the first few.
struct Lengths {
  std::uint32_t brief = 1;
  std::uint32_t full = 1;
  std::uint32_t first = 0;
  std::uint32_t many = 0;

  std::uint32_t of(std::uint32_t step) const { return step >= first && step - first < many ? full : brief; }
  // The rounds of the first steps together.
  std::uint64_t total(std::uint64_t steps) const;
};

// What each bound carries in the steps of a schedule.
class Rooms {
 public:
  Rooms(const std::vector<Bandwidth>& bandwidths, Lengths lengths);

  const Lengths& lengths() const { return lengths_; }
  const std::vector<Amount>& at(std::uint32_t step) const {
    return lengths_.of(step) == lengths_.brief ? brief_ : full_;
  }
  // The number of steps, from the first on, in which a bound carries an amount if it is used from step `begin` on.
  std::uint64_t end(std::uint32_t bound, std::uint64_t begin, Amount amount) const;

 private:
  Lengths lengths_;
  std::vector<Amount> brief_;
  std::vector<Amount> full_;
};

// A number of steps below which there is no schedule: what each bound carries of the hops that have a long way before
// or after them.
class Fewest {
 public:
  explicit Fewest(const Work& work);
  std::uint64_t steps(const Rooms& rooms) const;

 private:
  struct Need {  // hops that begin with step `head` and end `tail` steps before the last
    std::uint32_t bound = 0;
    std::uint32_t head = 0;
    std::uint32_t tail = 0;
    Amount load = 0;
  };
  std::vector<Need> needs_;
  std::uint64_t depth_;
};

// The lengths with which schedules are expected to have the fewest rounds, the best first.
std::vector<Lengths> lengths_for(const Work& work, const Fewest& fewest);

}  // namespace gc3::synth
