#include "gc3/compiler/direct/lower.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "gc3/compiler/direct/moves.h"
#include "gc3/compiler/direct/signals.h"

namespace gc3::compiler::direct {
namespace {

using ir::direct::Op;
using ir::direct::Program;

class DirectEmitter {
 public:
  DirectEmitter(const ir::Program& from, const Moves& moves, const Signals& signals)
      : from_(from), moves_(moves), signals_(signals), tbs_(from.threadblocks.size()) {
    for (std::uint32_t r = 0; r < from.ranks.size(); ++r) {
      rank_of_.insert(rank_of_.end(), from.ranks[r].tb_count, r);
    }
    incoming_.resize(tbs_);
    outgoing_.resize(tbs_);
    for (const Edge& e : signals.edges) {
      outgoing_[e.from_tb].push_back(&e);
      incoming_[e.to_tb].push_back(&e);
    }
    for (auto& edges : outgoing_) std::ranges::stable_sort(edges, {}, &Edge::from);
    for (auto& edges : incoming_) std::ranges::stable_sort(edges, {}, &Edge::to);
  }

  Program run() {
    out_.name = from_.name;
    out_.collective = from_.collective;
    out_.source.files = from_.source.files;
    out_.source.lines = from_.source.lines;
    for (std::uint32_t r = 0; r < from_.ranks.size(); ++r) {
      out_.ranks.push_back({static_cast<std::uint32_t>(out_.threadblocks.size()), 0, moves_.scratch_chunks[r]});
      for (std::uint32_t t = 0; t < from_.ranks[r].tb_count; ++t) {
        const std::uint32_t tb = from_.ranks[r].first_tb + t;
        if (signals_.moves[tb].empty() && incoming_[tb].empty() && outgoing_[tb].empty()) continue;
        ++out_.ranks[r].tb_count;
        out_.threadblocks.push_back({static_cast<std::uint32_t>(out_.steps.size()), 0});
        threadblock(tb);
        out_.threadblocks.back().step_count =
            static_cast<std::uint32_t>(out_.steps.size()) - out_.threadblocks.back().first_step;
      }
    }
    return std::move(out_);
  }

 private:
  void threadblock(std::uint32_t tb) {
    const std::vector<std::uint32_t>& moves = signals_.moves[tb];
    in_step_ = true;
    give(tb, 0);
    for (std::uint32_t k = 0; k < moves.size(); ++k) {
      take(tb, k);
      if (signals_.synced[tb][k] && !in_step_) step(Op::sync, {}, false);
      move(moves_.all[moves[k]]);
      give(tb, k + 1);
    }
    take(tb, static_cast<std::uint32_t>(moves.size()));
  }

  void give(std::uint32_t tb, std::uint32_t after) {
    for (const bool at_home : {true, false}) {
      for (const bool relaxed : {false, true}) {
        const std::vector<std::uint32_t> objects = objects_of(outgoing_[tb], &Edge::from, after, at_home, relaxed);
        if (objects.empty()) continue;
        if (!in_step_ || (relaxed && again(objects))) step(Op::sync, {}, false);
        step(at_home ? Op::release : Op::signal, objects, relaxed);
      }
    }
  }
  void take(std::uint32_t tb, std::uint32_t before) {
    for (const bool at_home : {true, false}) {
      for (const bool relaxed : {false, true}) {
        const std::vector<std::uint32_t> objects = objects_of(incoming_[tb], &Edge::to, before, at_home, relaxed);
        if (objects.empty()) continue;
        if (relaxed && again(objects)) step(Op::sync, {}, false);
        step(at_home ? Op::acquire : Op::wait, objects, relaxed);
      }
    }
  }

  // Whether the step before has some of these objects, perhaps in other threads.
  bool again(const std::vector<std::uint32_t>& objects) const {
    if (out_.steps.size() == out_.threadblocks.back().first_step) return false;
    const ir::direct::Step& last = out_.steps.back();
    if (ir::direct::info(last.op).objects != ir::direct::Objects::channel) return false;
    const auto before = std::span(out_.objects).subspan(last.first, last.sources);
    return std::ranges::find_first_of(before, objects) != before.end();
  }

  std::vector<std::uint32_t> objects_of(const std::vector<const Edge*>& edges, std::uint32_t Edge::* end,
                                        std::uint32_t position, bool at_home, bool relaxed) {
    std::vector<std::uint32_t> found;
    for (const Edge* e : std::ranges::equal_range(edges, position, {}, [&](const Edge* x) { return x->*end; })) {
      if (e->relaxed != relaxed || (rank_of_[e->from_tb] == rank_of_[e->to_tb]) != at_home) continue;
      found.push_back(object(*e));
    }
    return found;
  }

  // One channel, or semaphore, for each two threadblocks.
  std::uint32_t object(const Edge& e) {
    const std::uint32_t from = rank_of_[e.from_tb];
    const std::uint32_t to = rank_of_[e.to_tb];
    const auto next = static_cast<std::uint32_t>(from == to ? out_.semaphores.size() : out_.channels.size());
    const auto [at, made] = objects_.try_emplace({e.from_tb, e.to_tb}, next);
    if (made && from == to) out_.semaphores.push_back({from, 0});
    if (made && from != to) out_.channels.push_back({from, to, false});
    return at->second;
  }

  void step(Op op, const std::vector<std::uint32_t>& objects, bool relaxed) {
    if (op == Op::wait || op == Op::acquire || op == Op::sync) in_step_ = op == Op::sync;
    out_.steps.push_back({op, relaxed, 0, static_cast<std::uint32_t>(out_.objects.size()),
                          static_cast<std::uint32_t>(objects.size()), 0, kNone});
    out_.objects.insert(out_.objects.end(), objects.begin(), objects.end());
    if (from_.source.known()) out_.source.line_of.push_back(kNone);
  }
  void move(const Move& m) {
    in_step_ = false;
    const auto first = static_cast<std::uint32_t>(out_.operands.size());
    const std::uint32_t sources = operands(m.sources, m.summed);
    out_.steps.push_back({Op::move, false, m.count, first, sources, operands(m.targets, m.copied), kNone});
    if (from_.source.known()) out_.source.line_of.push_back(from_.source.line_of[m.instruction]);
  }

  // How many there are: all that go through a switch are one.
  std::uint32_t operands(const std::vector<Spot>& spots, const Move::Switched& switched) {
    const std::size_t before = out_.operands.size();
    if (!switched.ranks.empty()) {
      const ir::direct::Group group{switched.ranks};
      const auto at = std::ranges::find(out_.groups, group);
      const auto number = static_cast<std::uint32_t>(at - out_.groups.begin());
      if (at == out_.groups.end()) out_.groups.push_back(group);
      out_.operands.push_back({number, switched.place.index, switched.place.buffer, ir::direct::Access::multicast});
    }
    for (const Spot& s : spots) {
      if (switched.has(s)) continue;
      out_.operands.push_back({s.rank, s.place.index, s.place.buffer, ir::direct::Access::plain});
    }
    return static_cast<std::uint32_t>(out_.operands.size() - before);
  }

  const ir::Program& from_;
  const Moves& moves_;
  const Signals& signals_;
  std::size_t tbs_;
  std::vector<std::uint32_t> rank_of_;
  std::vector<std::vector<const Edge*>> incoming_;  // per threadblock, in its order
  std::vector<std::vector<const Edge*>> outgoing_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> objects_;
  bool in_step_ = true;  // the threads have done nothing since the last sync that others have to wait for
  Program out_;
};

}  // namespace

Result<Program> lower(const ir::Program& program, bool pushing) {
  const bool switched = !program.switched.empty();  // a switch stores for the rank that has the value
  GC3_ASSIGN(Moves moves, find_moves(program, !pushing && !switched));
  moves = join(program, std::move(moves), pushing || switched);
  if (switched) use_switches(program, moves);
  const Signals signals = place_signals(program, moves);
  return DirectEmitter(program, moves, signals).run();
}

}  // namespace gc3::compiler::direct
