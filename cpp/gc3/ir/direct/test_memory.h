// The weak memory in which test_weaver.h executes direct programs.
//
// Two orders of events are kept, as vector clocks. `ran`: one event has happened before the other one, by any signal,
// or packet, or flush. `seen`: what one has stored is visible to the other one: by the order of a thread, syncs,
// barriers, semaphores, and signals and waits that are not relaxed. In addition, what a rank has stored in its own
// memory before a call is visible wherever that call is known to have begun.
//
// Wrong are a load that may return more than one value, now or under another schedule, and a packet that is overwritten
// or may be mistaken for another one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/mix64.h"
#include "gc3/ir/direct/program.h"

namespace gc3::ir::direct::test {

class WeakMemory {
 protected:
  struct Clocks {
    std::vector<std::uint32_t> seen;
    std::vector<std::uint32_t> ran;
  };
  // The place of a half of a plain chunk. A half of a packet chunk has two.
  struct Place {
    std::uint32_t rank;
    Buffer buffer;
    std::uint64_t half;  // of the chunk, counted over the buffer
    auto operator<=>(const Place&) const = default;
  };
  struct Store {
    std::uint32_t thread;
    std::uint32_t time;
    std::uint64_t value;
    std::uint64_t flag;      // of a packet: its call, from 1 on; else 0
    bool foreign;            // left there by another program
    std::uint32_t launches;  // of its rank before it; kNone: in another rank's memory
    std::uint64_t covers;    // the stores before it that it has overwritten
  };
  struct Load {
    std::uint32_t thread;
    std::uint32_t time;
    std::uint64_t value;
    std::uint64_t covers = 0;  // of a packet: the stores before it
  };
  static constexpr std::uint64_t kItself = std::uint64_t{1} << 63U;  // beyond the stores of a cell
  struct Cell {
    std::vector<Store> stores;
    std::vector<Load> loads;
  };

  ~WeakMemory() = default;
  virtual std::string name(std::uint32_t thread) const = 0;
  static std::string name(const Place& place) {
    return "half " + std::to_string(place.half % 2) + " of " +
           place_name({place.buffer, static_cast<std::uint32_t>((place.half & 0xffffffffffU) / 2)}) + " of rank " +
           std::to_string(place.rank);
  }
  static std::string place_name(const model::Place& p) {
    return std::string(model::name_of(p.buffer)) + "[" + std::to_string(p.index) + "]";
  }
  std::uint32_t begun(std::uint32_t rank) const { return static_cast<std::uint32_t>(launches_[rank].size()); }
  Clocks nothing() const {
    return {std::vector<std::uint32_t>(rank_of_.size(), 0), std::vector<std::uint32_t>(rank_of_.size(), 0)};
  }
  static void join(std::vector<std::uint32_t>& into, const std::vector<std::uint32_t>& from) {
    if (into.empty()) into.resize(from.size(), 0);
    for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
  }
  static void join(Clocks& into, const Clocks& from, bool visible = true) {
    if (visible) join(into.seen, from.seen);
    join(into.ran, from.ran);
  }
  std::uint32_t tick(std::uint32_t t) {
    now_[t].seen[t] = now_[t].ran[t] + 1;
    return ++now_[t].ran[t];
  }
  void fail(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

  bool known(std::uint32_t t, const Store& s) const {
    if (now_[t].seen[s.thread] >= s.time) return true;
    const std::uint32_t rank = rank_of_[s.thread];
    if (s.launches == kNone || launches_[rank].size() <= s.launches) return false;
    return now_[t].ran[users_ + rank] >= launches_[rank][s.launches];
  }
  // The stores that a load could still find there. `first`: also what was there at first.
  std::vector<const Store*> candidates(std::uint32_t t, const Cell& cell, bool& first) const {
    std::uint64_t hidden = 0;
    first = true;
    for (const Store& s : cell.stores) {
      if (!known(t, s)) continue;
      hidden |= s.covers;
      first = false;
    }
    // Whoever comes after a thread that has taken a packet finds nothing older there.
    for (const Load& l : cell.loads) {
      if (l.covers == 0 || now_[t].seen[l.thread] < l.time) continue;
      hidden |= l.covers & ~kItself;
      first = false;
    }
    std::vector<const Store*> found;
    for (std::size_t i = 0; i < cell.stores.size(); ++i) {
      if ((hidden >> i & 1U) == 0) found.push_back(&cell.stores[i]);
    }
    return found;
  }
  std::uint64_t load(std::uint32_t t, const Place& place) {
    Cell& cell = memory_[place];
    bool first = false;
    const auto found = candidates(t, cell, first);
    std::uint64_t value = garbage(place);
    if (!found.empty()) value = bits(*found.back());
    for (const Store* s : found) {
      if (bits(*s) != value || first || (strict_ && found.size() > 1)) {
        fail(name(t) + " may load one of several values from " + name(place));
      }
    }
    cell.loads.push_back({t, tick(t), value});
    return value;
  }
  void store(std::uint32_t t, const Place& place, std::uint64_t value, std::uint64_t flag = 0, bool foreign = false) {
    Cell& cell = memory_[place];
    const bool own = rank_of_[t] == place.rank && t < proxies_;
    Store made{t, tick(t), value, flag, foreign, own ? begun(place.rank) : kNone, 0};
    for (const Load& l : cell.loads) {
      if ((l.value != bits(made) || strict_) && now_[t].ran[l.thread] < l.time) {
        fail(name(t) + " may overwrite " + name(place) + " before " + name(l.thread) + " has loaded it");
      }
    }
    for (std::size_t i = 0; i < cell.stores.size() && i < 63; ++i) {
      if (known(t, cell.stores[i])) {
        made.covers |= std::uint64_t{1} << i | cell.stores[i].covers;
      } else if (strict_) {
        fail(name(t) + " and " + name(cell.stores[i].thread) + " may store to " + name(place) + " in any order");
      }
    }
    if (cell.stores.size() == 63) fail("too many stores for this test");
    cell.stores.push_back(made);
  }
  // What a plain load finds.
  static std::uint64_t bits(const Store& s) { return s.flag == 0 ? s.value : mix64(s.value ^ s.flag); }
  static std::uint64_t garbage(const Place& place) {
    return mix64(mix64(place.rank * 3U + static_cast<std::uint64_t>(place.buffer)) ^ place.half);
  }

  // False: the packet has not come.
  bool take(std::uint32_t t, const std::array<Place, 2>& places, std::uint64_t flag, std::uint64_t& value) {
    for (const Place& place : places) {
      const Cell& cell = memory_[place];
      if (cell.stores.empty() || cell.stores.back().flag != flag) {
        if (!cell.stores.empty() && cell.stores.back().flag == 0 && !cell.stores.back().foreign) {
          fail(name(t) + " may take data in " + name(place) + " for packets");
        }
        return false;
      }
    }
    for (const Place& place : places) {
      Cell& cell = memory_[place];
      bool first = false;
      const Store& taken = cell.stores.back();
      for (const Store* s : candidates(t, cell, first)) {
        if (s->flag == 0 && !s->foreign) fail(name(t) + " may take data in " + name(place) + " for packets");
        if (s->flag == flag && s->value != taken.value)
          fail(name(t) + " may take one of several packets in " + name(place));
      }
      value = taken.value;
      cell.loads.push_back({t, tick(t), bits(taken), taken.covers | kItself});
      // The store ran before; what else its thread has stored is not visible.
      join(now_[t].ran, packets_[{taken.thread, taken.time}]);
    }
    return true;
  }
  // What a proxy finds, which does not wait for packets.
  std::uint64_t copied(std::uint32_t t, const std::array<Place, 2>& places, std::uint64_t flag) {
    std::uint64_t value = 0;
    for (const Place& place : places) {
      Cell& cell = memory_[place];
      bool first = false;
      const auto found = candidates(t, cell, first);
      const auto other = [&](const Store* s) { return s->flag != flag || s->value != found.back()->value; };
      if (first || found.empty() || std::ranges::any_of(found, other)) {
        fail(name(t) + " may copy what is in " + name(place) + " before the packet has come");
      }
      if (!found.empty()) value = found.back()->value;
      cell.loads.push_back({t, tick(t), found.empty() ? garbage(place) : bits(*found.back())});
    }
    return value;
  }
  void send(std::uint32_t t, const std::array<Place, 2>& places, std::uint64_t value, std::uint64_t flag) {
    for (const Place& place : places) {
      store(t, place, value, flag);
      packets_[{t, now_[t].ran[t]}] = now_[t].ran;
    }
  }

  std::vector<std::uint32_t> rank_of_;  // by thread: those of threadblocks, users, and proxies of channels
  std::vector<Clocks> now_;
  std::uint32_t users_ = 0;
  std::uint32_t proxies_ = 0;
  std::vector<std::vector<std::uint32_t>> launches_;  // by rank: the times of its user
  bool strict_ = false;  // accesses that nothing orders are wrong even where they do no harm
  std::string wrong_;

 private:
  std::map<Place, Cell> memory_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> packets_;  // what ran before each
};

}  // namespace gc3::ir::direct::test
