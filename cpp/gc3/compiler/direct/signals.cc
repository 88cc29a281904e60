#include "gc3/compiler/direct/signals.h"

#include <algorithm>
#include <map>
#include <optional>

#include "gc3/base/interrupt.h"
#include "gc3/ir/index.h"

namespace gc3::compiler::direct {
namespace {

using model::Buffer;

class SignalPlacer {
 public:
  SignalPlacer(const ir::Program& program, const Moves& moves)
      : program_(program), moves_(moves), tbs_(program.threadblocks.size()) {
    rank_of_.resize(tbs_);
    for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
      for (std::uint32_t t = 0; t < program.ranks[r].tb_count; ++t) rank_of_[program.ranks[r].first_tb + t] = r;
    }
    known_.resize(tbs_);
    history_.resize(tbs_);
    unsynced_.assign(tbs_, 0);
    out_.moves.resize(tbs_);
    out_.synced.resize(tbs_);
    std::size_t spots = 0;
    for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
      first_spot_.push_back(spots);
      spots += std::size_t{program.collective.input_chunks(r)} + program.collective.output_chunks(r) +
               moves.scratch_chunks[r];
    }
    spots_.resize(spots);
    last_load_.resize(tbs_);
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

  Access& access(const Spot& s, std::uint32_t k) {
    const model::Collective& c = program_.collective;
    const std::size_t of_buffer = s.place.buffer == Buffer::input ? 0
                                  : s.place.buffer == Buffer::output
                                      ? c.input_chunks(s.rank)
                                      : std::size_t{c.input_chunks(s.rank)} + c.output_chunks(s.rank);
    return spots_[first_spot_[s.rank] + of_buffer + s.place.index + k];
  }

  void add(std::uint32_t m) {
    const Move& move = moves_.all[m];
    const std::uint32_t tb = move.tb;
    const std::uint32_t rank = rank_of_[tb];
    const Position here{tb, static_cast<std::uint32_t>(out_.moves[tb].size()) + 1};
    std::vector<Need> needs;
    std::vector<std::uint32_t> begun;  // ranks
    for (std::uint32_t k = 0; k < move.count; ++k) {
      for (const Spot& s : move.sources) {
        Access& a = access(s, k);
        if (a.writer.tb != kNone) {
          needs.push_back({a.writer, true});
        } else if (s.rank != rank) {
          begun.push_back(s.rank);
        }
        if (s.rank != rank) last_load_[tb][s.rank] = here.after;
      }
      for (const Spot& s : move.targets) {
        Access& a = access(s, k);
        for (const Position& reader : a.readers) needs.push_back({reader, false});
        if (a.readers.empty() && a.writer.tb != kNone) needs.push_back({a.writer, true});
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
  bool settle(std::uint32_t tb, std::vector<Need>& needs, const std::vector<std::uint32_t>& begun) {
    const auto now = static_cast<std::uint32_t>(out_.moves[tb].size());
    // The latest first: they imply most.
    std::ranges::stable_sort(needs, std::ranges::greater(), [](const Need& n) { return n.of.after; });
    bool any = false;
    for (const Need& need : needs) {
      if (need.of.tb == tb || knows(tb, need.of, need.visible)) continue;
      any = connect(need.of, tb, now, !need.visible) || any;
    }
    for (const std::uint32_t rank : begun) {
      if (has_begun(tb, rank)) continue;
      const ir::RankProgram& there = program_.ranks[rank];
      const std::uint32_t partner = there.first_tb + (tb - program_.ranks[rank_of_[tb]].first_tb) % there.tb_count;
      any = connect({partner, 0}, tb, now, true) || any;
    }
    return any;
  }

  bool knows(std::uint32_t tb, Position of, bool visible) const {
    const auto at = std::ranges::lower_bound(known_[tb], of.tb, {}, &Knowledge::of);
    if (at == known_[tb].end() || at->of != of.tb) return false;
    return (visible ? at->visible : at->done) >= static_cast<std::int32_t>(of.after);
  }
  bool has_begun(std::uint32_t tb, std::uint32_t rank) const {
    const ir::RankProgram& there = program_.ranks[rank];
    const auto at = std::ranges::lower_bound(known_[tb], there.first_tb, {}, &Knowledge::of);
    return at != known_[tb].end() && at->of < there.first_tb + there.tb_count;
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

  // A rank's call ends after the last load of every other threadblock from it.
  void leave() {
    for (std::uint32_t tb = 0; tb < tbs_; ++tb) {
      for (const auto& [rank, after] : last_load_[tb]) {
        const ir::RankProgram& there = program_.ranks[rank];
        const Position last{tb, after};
        bool known = false;
        for (std::uint32_t t = 0; t < there.tb_count; ++t) known = known || knows(there.first_tb + t, last, false);
        if (known) continue;
        const std::uint32_t partner = there.first_tb + (tb - program_.ranks[rank_of_[tb]].first_tb) % there.tb_count;
        connect(last, partner, static_cast<std::uint32_t>(out_.moves[partner].size()), true);
      }
    }
  }

  const ir::Program& program_;
  const Moves& moves_;
  std::size_t tbs_;
  std::vector<std::uint32_t> rank_of_;
  std::vector<Clock> known_;                 // per threadblock, now
  std::vector<std::vector<Clock>> history_;  // per threadblock and number of its moves
  std::vector<std::uint32_t> unsynced_;      // per threadblock: the moves before its last sync
  std::vector<std::size_t> first_spot_;
  std::vector<Access> spots_;
  std::vector<std::map<std::uint32_t, std::uint32_t>> last_load_;  // per threadblock: of each other rank
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::optional<std::size_t>> last_edge_;
  Signals out_;
};

}  // namespace

Signals place_signals(const ir::Program& program, const Moves& moves) { return SignalPlacer(program, moves).run(); }

}  // namespace gc3::compiler::direct
