// Who signals and who waits: the pairs that make a direct program's order, checked for what one call may leave behind.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "gc3/base/findings.h"
#include "gc3/ir/direct/program.h"
#include "gc3/verify/direct/order.h"

namespace gc3::verify::direct {

// A channel or a semaphore.
struct Counter {
  struct Giver {
    std::uint32_t tb = kNone;     // in Program::threadblocks
    std::uint32_t each_call = 0;  // signals or releases
    struct Given {
      Event event = kNone;
      bool relaxed = false;
    };
    std::vector<Given> given;  // in order
  };
  std::vector<Giver> givers;
  std::uint32_t taker = kNone;  // the threadblock that waits or acquires
  std::uint32_t each_call = 0;  // given and taken
  std::uint32_t initial = 0;
  std::uint64_t given = 0;  // so far
  std::uint64_t taken = 0;
  Event last = kNone;  // of a port channel: the last event of its proxy

  bool ready() const { return given + initial > taken; }
  void give(std::uint32_t tb, Giver::Given event) {
    ++given;
    for (Giver& g : givers) {
      if (g.tb == tb) g.given.push_back(event);
    }
  }
  // The events that the next wait or acquire, in call `call`, certainly comes after: of several givers each has given
  // at least what the others cannot have given.
  std::vector<Giver::Given> before_next(std::uint32_t call) const {
    std::vector<Giver::Given> found;
    const std::uint64_t number = taken + 1;
    if (number <= initial) return found;
    const std::uint64_t index = number - initial - 1;  // of the one given
    if (index / each_call != call) return found;       // of an earlier call of the same rank
    const std::uint64_t of_call = index % each_call + 1;
    for (const Giver& g : givers) {
      const std::uint64_t others = each_call - g.each_call;
      if (of_call > others) found.push_back(g.given[std::size_t{call} * g.each_call + of_call - others - 1]);
    }
    return found;
  }
};

// What the proxy of a port channel has been told: by which thread of which threadblock, and when. It does things in the
// order in which it is told. Threads without a sync between them, and threadblocks, may tell it in any order.
class Proxy {
 public:
  // The events of the proxy that certainly come before what this thread tells it next.
  std::vector<Event> before(std::uint32_t tb, std::uint64_t phase, std::uint32_t thread) {
    Teller& teller = tellers_[tb];
    if (phase != teller.phase && !teller.told.empty()) {
      teller.earlier.clear();  // what was told since comes after it
      for (const Told& t : teller.told) teller.earlier.push_back(t.last);
      teller.told.clear();
    }
    teller.phase = phase;
    std::vector<Event> found = teller.earlier;
    for (const Told& t : teller.told) {
      if (t.thread == thread) found.push_back(t.last);
    }
    return found;
  }
  void tell(std::uint32_t tb, std::uint32_t thread, Event event) {
    std::vector<Told>& told = tellers_[tb].told;
    std::erase_if(told, [&](const Told& t) { return t.thread == thread; });
    told.push_back({thread, event});
  }

 private:
  struct Told {
    std::uint32_t thread;
    Event last;
  };
  struct Teller {
    std::uint64_t phase = 0;
    std::vector<Event> earlier;  // before this phase
    std::vector<Told> told;      // in it, the last by each thread
  };
  std::map<std::uint32_t, Teller> tellers_;  // by threadblock
};

struct Counters {
  std::vector<Counter> channels;
  std::vector<Counter> semaphores;
};

// Reports counters that are not given as often as taken in a call, or taken by several threadblocks, and barriers to
// which others come than they say.
Counters pair_signals(const ir::direct::Program& program, Findings& findings);

}  // namespace gc3::verify::direct
