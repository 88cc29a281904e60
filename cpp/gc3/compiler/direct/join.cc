#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "gc3/base/interrupt.h"
#include "gc3/compiler/direct/moves.h"
#include "gc3/ir/direct/places.h"

namespace gc3::compiler::direct {
namespace {

template <class Range, class T>
bool contains(const Range& range, const T& value) {
  return std::ranges::find(range, value) != std::ranges::end(range);
}

class MoveJoiner {
 public:
  MoveJoiner(const ir::Program& program, Moves moves)
      : from_(std::move(moves)), places_(program.collective, from_.scratch_chunks, 1), accesses_(places_.count()) {
    for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
      rank_of_.insert(rank_of_.end(), program.ranks[r].tb_count, r);
    }
  }

  Moves run(bool pushing) {
    drop_idle();
    pass([&](Move& m) { return sum_up(m); });
    if (pushing) pass([&](Move& m) { return store_with(m); });
    return std::move(from_);
  }

 private:
  struct Access {
    std::uint32_t writer = kNone;  // a number in done_, likewise the readers since
    std::vector<std::uint32_t> readers;
  };

  // Goes through the moves in order. `join(move)`: whether an earlier one does what it does.
  template <class Join>
  void pass(Join join) {
    Breath breathe;
    done_.clear();
    accesses_.assign(places_.count(), {});
    for (Move& m : from_.all) {
      breathe();
      if (join(m)) continue;
      done_.push_back(std::move(m));
      const auto number = static_cast<std::uint32_t>(done_.size() - 1);
      const Move& made = done_.back();
      for (const Spot& s : made.sources) each(made, s, [&](Access& a) { a.readers.push_back(number); });
      for (const Spot& s : made.targets) each(made, s, [&](Access& a) { a = {number, {}}; });
    }
    std::erase_if(done_, [](const Move& m) { return m.count == 0; });
    from_.all = std::move(done_);
  }

  std::uint32_t number(const Spot& s, std::uint32_t k) const {
    return places_.number(s.rank, s.place.buffer, s.place.index + k);
  }
  template <class Visit>
  void each(const Move& m, const Spot& s, Visit visit) {
    for (std::uint32_t k = 0; k < m.count; ++k) visit(accesses_[number(s, k)]);
  }
  template <class Holds>
  bool all(const Move& m, const Spot& s, Holds holds) {
    bool found = true;
    each(m, s, [&](const Access& a) { found = found && holds(a); });
    return found;
  }
  bool same_rank(const Move& a, const Move& b) const { return rank_of_[a.tb] == rank_of_[b.tb]; }

  // Leaves out moves that store to a place the value that it has, and then those to scratch that nothing loads.
  void drop_idle() {
    std::vector<std::uint64_t> values(places_.count());
    std::iota(values.begin(), values.end(), std::uint64_t{0});
    std::uint64_t next = values.size();
    std::erase_if(from_.all, [&](const Move& m) {
      const bool copies = m.sources.size() == 1;
      const auto value = [&](const Spot& s, std::uint32_t k) -> std::uint64_t& { return values[number(s, k)]; };
      std::vector<std::uint64_t> made(m.count);
      for (std::uint32_t k = 0; k < m.count; ++k) made[k] = copies ? value(m.sources[0], k) : next++;
      bool idle = true;
      for (const Spot& t : m.targets) {
        for (std::uint32_t k = 0; k < m.count; ++k) idle = std::exchange(value(t, k), made[k]) == made[k] && idle;
      }
      return idle;
    });
    std::vector<bool> needed(places_.count());
    for (auto m = from_.all.rbegin(); m != from_.all.rend(); ++m) {
      bool idle = true;
      for (const Spot& t : m->targets) {
        for (std::uint32_t k = 0; k < m->count; ++k) {
          idle = idle && t.place.buffer == model::Buffer::scratch && !needed[number(t, k)];
          needed[number(t, k)] = false;
        }
      }
      if (idle) m->count = 0;
      for (const Spot& s : m->sources) {
        for (std::uint32_t k = 0; k < m->count; ++k) needed[number(s, k)] = true;
      }
    }
    std::erase_if(from_.all, [](const Move& m) { return m.count == 0; });
  }

  // t = a + b; t = t + c becomes t = a + b + c, if nothing else has touched t and its terms are still there. Bits stay:
  // a sum of two does not depend on their order.
  bool sum_up(Move& m) {
    if (m.targets.size() != 1 || m.sources.size() < 2) return false;
    const Spot t = m.targets[0];
    const auto at = std::ranges::find(m.sources, t);
    if (std::ranges::count(m.sources, t) != 1 || (at != m.sources.begin() && m.sources.size() != 2)) return false;
    const std::uint32_t first = accesses_[number(t, 0)].writer;
    if (first == kNone) return false;
    Move& w = done_[first];
    const bool alone = w.count == m.count && w.targets == m.targets && same_rank(w, m) &&
                       all(m, t, [&](const Access& a) { return a.writer == first && a.readers.empty(); });
    if (!alone) return false;
    const bool there = std::ranges::all_of(w.sources, [&](const Spot& s) {
      return s == t || all(m, s, [&](const Access& a) { return a.writer == kNone || a.writer < first; });
    });
    if (!there) return false;
    m.sources.erase(at);
    m.sources.insert(m.sources.begin(), w.sources.begin(), w.sources.end());
    m.reduces = m.reduces || w.reduces;
    w.count = 0;
    return false;
  }

  bool store_with(Move& m) {
    if (m.sources.size() != 1) return false;
    const Spot& source = m.sources[0];
    if (source.rank != rank_of_[m.tb] && m.sender != kNone) m.tb = m.sender;
    if (source.rank != rank_of_[m.tb]) return false;
    const Access& access = accesses_[number(source, 0)];
    if (access.writer != kNone && join(m, access.writer)) return true;
    return std::ranges::any_of(access.readers, [&](std::uint32_t reader) { return join(m, reader); });
  }

  // Whether move `number` has the value and stores it to the targets of `m` as well.
  bool join(const Move& m, std::uint32_t number) {
    Move& w = done_[number];
    const Spot& source = m.sources[0];
    const bool made =
        contains(w.targets, source) && all(m, source, [&](const Access& a) { return a.writer == number; });
    const bool read = w.sources == m.sources;
    if (w.count != m.count || !same_rank(w, m) || !(made || read)) return false;
    if (read && !all(m, source, [&](const Access& a) { return contains(a.readers, number); })) return false;
    // Nothing has touched them since.
    const bool free = std::ranges::all_of(m.targets, [&](const Spot& t) {
      const bool own = contains(w.sources, t);
      return all(m, t, [&](const Access& a) {
        return (a.writer == kNone || a.writer < number) &&
               std::ranges::all_of(a.readers, [&](std::uint32_t r) { return r < number || (own && r == number); });
      });
    });
    if (!free) return false;
    for (const Spot& t : m.targets) {
      w.targets.push_back(t);
      each(m, t, [&](Access& a) { a = {number, {}}; });
    }
    return true;
  }

  Moves from_;
  ir::direct::Places places_;
  std::vector<std::uint32_t> rank_of_;
  std::vector<Access> accesses_;
  std::vector<Move> done_;
};

}  // namespace

Moves join(const ir::Program& program, Moves moves, bool pushing) {
  return MoveJoiner(program, std::move(moves)).run(pushing);
}

}  // namespace gc3::compiler::direct
