#include "gc3/compiler/direct/signals.h"

#include <algorithm>
#include <map>
#include <optional>

#include "gc3/base/interrupt.h"
#include "gc3/ir/direct/places.h"

namespace gc3::compiler::direct {
namespace {

using model::Buffer;

class SignalPlacer {
 public:
  SignalPlacer(const ir::Program& program, const Moves& moves)
      : program_(program),
        moves_(moves),
        tbs_(program.threadblocks.size()),
        places_(program.collective, moves.scratch_chunks, 1) {
    rank_of_.resize(tbs_);
    for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
      for (std::uint32_t t = 0; t < program.ranks[r].tb_count; ++t) rank_of_[program.ranks[r].first_tb + t] = r;
    }
    known_.resize(tbs_);
    history_.resize(tbs_);
    unsynced_.assign(tbs_, 0);
    out_.moves.resize(tbs_);
    out_.synced.resize(tbs_);
    spots_.resize(places_.count());
    std::vector<bool> moving(tbs_);
    last_writer_.assign(places_.count(), kNone);
    for (const Move& m : moves.all) {
      moving[m.tb] = true;
      for (std::uint32_t k = 0; k < m.count; ++k) {
        for (const Spot& s : m.targets) last_writer_[number(s, k)] = rank_of_[m.tb];
      }
      for (const std::vector<Spot>* spots : {&m.sources, &m.targets}) {
        for (const Spot& s : *spots) {
          std::vector<std::uint32_t>& there = reaching_[{rank_of_[m.tb], s.rank}];
          if (s.rank != rank_of_[m.tb] && std::ranges::find(there, m.tb) == there.end()) there.push_back(m.tb);
        }
      }
    }
    place_.resize(tbs_);
    for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
      working_.push_back({});
      for (std::uint32_t t = 0; t < program.ranks[r].tb_count; ++t) {
        const std::uint32_t tb = program.ranks[r].first_tb + t;
        place_[tb] = static_cast<std::uint32_t>(working_[r].size());
        if (moving[tb]) working_[r].push_back(tb);
      }
      if (working_[r].empty()) working_[r].push_back(program.ranks[r].first_tb);
    }
    last_load_.resize(tbs_);
    last_store_.resize(tbs_);
  }

  Signals run() {
    Breath breathe;
    for (std::uint32_t tb = 0; tb < tbs_; ++tb) history_[tb].push_back(known_[tb]);
    for (std::uint32_t m = 0; m < moves_.all.size(); ++m) {
      breathe();
      add(m);
    }
    leave();
    return std::move(out_);
  }

 private:
  // What a threadblock knows of another: after so many of its moves; 0: that it has begun; kUnknown: nothing.
  static constexpr std::int32_t kUnknown = -1;
  struct Knowledge {
    std::uint32_t of;  // threadblock
    std::int32_t done = kUnknown;
    std::int32_t visible = kUnknown;
  };
  using Clock = std::vector<Knowledge>;  // ascending
  struct Position {
    std::uint32_t tb = kNone;
    std::uint32_t after = 0;  // so many moves
    bool operator==(const Position&) const = default;
  };
  struct Access {
    Position writer;
    std::vector<Position> readers;
  };
  struct Need {
    Position of;
    bool visible;
  };

  // What a move needs of a rank before it touches its memory: that it has begun the call, and that what others have
  // stored there in the call before is visible.
  struct Begin {
    std::uint32_t rank;
    bool visible;
  };

  std::uint32_t number(const Spot& s, std::uint32_t k) const {
    return places_.number(s.rank, s.place.buffer, s.place.index + k);
  }
  Access& access(const Spot& s, std::uint32_t k) { return spots_[number(s, k)]; }

  void add(std::uint32_t m) {
    const Move& move = moves_.all[m];
    const std::uint32_t tb = move.tb;
    const std::uint32_t rank = rank_of_[tb];
    const Position here{tb, static_cast<std::uint32_t>(out_.moves[tb].size()) + 1};
    std::vector<Need> needs;
    std::vector<Begin> begun;
    for (std::uint32_t k = 0; k < move.count; ++k) {
      for (const Spot& s : move.sources) {
        Access& a = access(s, k);
        if (a.writer.tb != kNone) {
          needs.push_back({a.writer, true});
        } else if (s.rank != rank) {
          begun.push_back({s.rank, false});
        }
        if (s.rank != rank) last_load_[tb][s.rank] = here.after;
      }
      for (const Spot& s : move.targets) {
        Access& a = access(s, k);
        for (const Position& reader : a.readers) needs.push_back({reader, false});
        if (a.readers.empty() && a.writer.tb != kNone) needs.push_back({a.writer, true});
        if (s.rank == rank) continue;
        // Of other buffers the caller has seen all that is there, between two calls.
        const bool by_others = s.place.buffer == Buffer::scratch && last_writer_[number(s, k)] != rank;
        if (a.readers.empty() && a.writer.tb == kNone) begun.push_back({s.rank, by_others});
        last_store_[tb][s.rank] = here.after;
      }
    }
    for (std::uint32_t k = 0; k < move.count; ++k) {
      for (const Spot& s : move.sources) {
        std::vector<Position>& readers = access(s, k).readers;
        if (readers.empty() || readers.back() != here) readers.push_back(here);
      }
    }
    for (std::uint32_t k = 0; k < move.count; ++k) {
      for (const Spot& s : move.targets) access(s, k) = {here, {}};
    }
    const bool waits = settle(tb, needs, begun);
    const bool in_block = std::ranges::any_of(
        needs, [&](const Need& n) { return n.of.tb == tb && n.of.after > unsynced_[tb] && n.of != here; });
    if (waits || in_block) unsynced_[tb] = here.after - 1;
    out_.synced[tb].push_back(waits || in_block);
    out_.moves[tb].push_back(m);
    history_[tb].push_back(known_[tb]);
  }

  // Adds the edges for what the next move of `tb` needs; whether there are any.
  bool settle(std::uint32_t tb, std::vector<Need>& needs, const std::vector<Begin>& begun) {
    const auto now = static_cast<std::uint32_t>(out_.moves[tb].size());
    // The latest first: they imply most.
    std::ranges::stable_sort(needs, std::ranges::greater(), [](const Need& n) { return n.of.after; });
    bool any = false;
    for (const Need& need : needs) {
      if (need.of.tb == tb || knows(tb, need.of, need.visible)) continue;
      any = connect(need.of, tb, now, !need.visible) || any;
    }
    for (const Begin& begin : begun) {
      if (has_begun(tb, begin)) continue;
      any = connect({partner(begin.rank, tb), 0}, tb, now, !begin.visible) || any;
    }
    return any;
  }

  bool knows(std::uint32_t tb, Position of, bool visible) const {
    const auto at = std::ranges::lower_bound(known_[tb], of.tb, {}, &Knowledge::of);
    if (at == known_[tb].end() || at->of != of.tb) return false;
    return (visible ? at->visible : at->done) >= static_cast<std::int32_t>(of.after);
  }
  bool has_begun(std::uint32_t tb, const Begin& begin) const {
    const ir::RankProgram& there = program_.ranks[begin.rank];
    auto at = std::ranges::lower_bound(known_[tb], there.first_tb, {}, &Knowledge::of);
    for (; at != known_[tb].end() && at->of < there.first_tb + there.tb_count; ++at) {
      if (!begin.visible || at->visible != kUnknown) return true;
    }
    return false;
  }

  // What is known after being told, which is as much as is visible to the teller where it is a strong signal.
  static Clock merged(const Clock& mine, const Clock& told, bool relaxed) {
    Clock all;
    all.reserve(mine.size() + told.size());
    auto a = mine.begin();
    auto b = told.begin();
    while (a != mine.end() || b != told.end()) {
      const bool takes_mine = b == told.end() || (a != mine.end() && a->of <= b->of);
      const bool takes_told = a == mine.end() || (b != told.end() && b->of <= a->of);
      Knowledge k = takes_mine ? *a : Knowledge{b->of};
      if (takes_told) {
        k.done = std::max(k.done, b->done);
        if (!relaxed) k.visible = std::max(k.visible, b->visible);
        ++b;
      }
      if (takes_mine) ++a;
      all.push_back(k);
    }
    return all;
  }

  // Whether an edge was added; otherwise an earlier one has been made stronger.
  bool connect(Position of, std::uint32_t tb, std::uint32_t before, bool relaxed) {
    std::optional<std::size_t>& last = last_edge_[{of.tb, tb}];
    const bool at_home = rank_of_[of.tb] == rank_of_[tb];
    bool added = true;
    if (last && out_.edges[*last].from >= of.after) {
      // It is done, but was not to be seen: the signal that told so has to publish, too.
      out_.edges[*last].relaxed = false;
      of.after = out_.edges[*last].from;
      relaxed = false;
      added = false;
    } else {
      relaxed = relaxed && !at_home;
      last = out_.edges.size();
      out_.edges.push_back({of.tb, of.after, tb, before, relaxed});
    }
    const auto after = static_cast<std::int32_t>(of.after);
    known_[tb] = merged(known_[tb], history_[of.tb][of.after], relaxed);
    known_[tb] = merged(known_[tb], {{of.tb, after, after}}, relaxed);
    return added;
  }

  // A rank's call ends after the last load of every other threadblock from it, and when the last store into it is
  // visible.
  void leave() {
    for (std::uint32_t tb = 0; tb < tbs_; ++tb) {
      for (const auto& [rank, after] : last_store_[tb]) leave(rank, {tb, after}, true);
      for (const auto& [rank, after] : last_load_[tb]) leave(rank, {tb, after}, false);
    }
  }
  void leave(std::uint32_t rank, Position last, bool visible) {
    const ir::RankProgram& there = program_.ranks[rank];
    for (std::uint32_t t = 0; t < there.tb_count; ++t) {
      if (knows(there.first_tb + t, last, visible)) return;
    }
    const std::uint32_t to = partner(rank, last.tb);
    connect(last, to, static_cast<std::uint32_t>(out_.moves[to].size()), !visible);
  }

  // The threadblock of `rank` that tells a threadblock of another rank of begin and end, and is told: if possible one
  // that has to do with that rank itself.
  std::uint32_t partner(std::uint32_t rank, std::uint32_t tb) const {
    const auto reaching = reaching_.find({rank, rank_of_[tb]});
    const std::vector<std::uint32_t>& there = reaching == reaching_.end() ? working_[rank] : reaching->second;
    return there[place_[tb] % there.size()];
  }

  const ir::Program& program_;
  const Moves& moves_;
  std::size_t tbs_;
  std::vector<std::uint32_t> rank_of_;
  std::vector<Clock> known_;                 // per threadblock, now
  std::vector<std::vector<Clock>> history_;  // per threadblock and number of its moves
  std::vector<std::uint32_t> unsynced_;      // per threadblock: the moves before its last sync
  ir::direct::Places places_;
  std::vector<std::vector<std::uint32_t>> working_;  // per rank: its threadblocks that have moves, or one
  std::vector<std::uint32_t> place_;                 // per threadblock: its position among them
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> reaching_;  // of a rank, another one
  std::vector<Access> spots_;
  std::vector<std::uint32_t> last_writer_;                          // of a call, by place: the rank
  std::vector<std::map<std::uint32_t, std::uint32_t>> last_load_;   // per threadblock: of each other rank
  std::vector<std::map<std::uint32_t, std::uint32_t>> last_store_;  // likewise
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::optional<std::size_t>> last_edge_;
  Signals out_;
};

}  // namespace

Signals place_signals(const ir::Program& program, const Moves& moves) { return SignalPlacer(program, moves).run(); }

}  // namespace gc3::compiler::direct
