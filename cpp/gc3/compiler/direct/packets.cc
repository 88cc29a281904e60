#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "gc3/base/interrupt.h"
#include "gc3/compiler/direct/lower.h"
#include "gc3/compiler/direct/moves.h"
#include "gc3/ir/direct/places.h"

namespace gc3::compiler::direct {
namespace {

using ir::direct::Access;
using ir::direct::Op;
using ir::direct::Operand;
using ir::direct::Program;
using model::Buffer;
using Operands = std::vector<Operand>;

// Goes through moves that pull. What a rank would load from another one, that one stores to it as packets: together
// with the move that makes the value, or else from where it is kept.
class PacketWriter {
 public:
  PacketWriter(const ir::Program& program, const Moves& moves)
      : program_(program),
        moves_(moves),
        places_(program.collective, moves.scratch_chunks, 1),
        writer_(places_.count()),
        made_(program.ranks.size()),
        packets_(program.ranks.size()) {
    for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
      rank_of_.insert(rank_of_.end(), program.ranks[r].tb_count, r);
    }
    find_shared();
  }

  Program run() {
    Breath breathe;
    for (std::size_t i = 0; i < moves_.all.size(); ++i) {
      breathe();
      instruction_ = moves_.all[i].instruction;
      add(moves_.all[i], shared_[i] ? &in_order_[i] : nullptr);
    }
    out_.name = program_.name;
    out_.collective = program_.collective;
    out_.halves = 2;
    out_.source.files = program_.source.files;
    out_.source.lines = program_.source.lines;
    for (std::uint32_t r = 0; r < made_.size(); ++r) emit(r);
    return std::move(out_);
  }

 private:
  struct Made {
    std::uint32_t count;
    std::uint32_t instruction;
    Operands sources;
    Operands targets;
    bool first = false;  // it sends what nothing has written yet
  };
  // What the chunks of a spot were written by: the number of the rank's move, and of the chunk in it.
  struct Writer {
    std::uint32_t move = kNone;
    std::uint32_t chunk = 0;
  };
  using Version = std::tuple<std::uint32_t, std::uint32_t, std::vector<std::uint32_t>>;  // place, chunks, writers

  std::uint32_t number(const Spot& s) const { return places_.number(s.rank, s.place.buffer, s.place.index); }
  static Operand plain(const Spot& s) { return {s.rank, s.place.index, s.place.buffer, Access::plain}; }

  // Notes the sums that several ranks compute, of whatever copies of the terms.
  void find_shared() {
    std::vector<std::uint64_t> values(places_.count());  // of which two places have the same one after a copy
    std::iota(values.begin(), values.end(), std::uint64_t{0});
    std::uint64_t next = values.size();
    std::map<std::vector<std::uint64_t>, std::pair<std::uint32_t, std::uint32_t>> first;  // by terms: rank, move
    shared_.resize(moves_.all.size());
    in_order_.resize(moves_.all.size());
    for (std::uint32_t i = 0; i < moves_.all.size(); ++i) {
      const Move& m = moves_.all[i];
      std::vector<std::uint64_t> terms;
      for (const Spot& s : m.sources) terms.push_back(values[number(s)]);
      std::ranges::sort(terms);
      in_order_[i] = m.sources;
      std::ranges::sort(in_order_[i], {}, [&](const Spot& s) { return values[number(s)]; });
      const auto [known, missing] = first.try_emplace(std::move(terms), rank_of_[m.tb], i);
      if (!missing && known->second.first != rank_of_[m.tb]) shared_[i] = shared_[known->second.second] = true;
      for (std::uint32_t k = 0; k < m.count; ++k) {
        const std::uint64_t made = m.sources.size() == 1 ? values[number(m.sources[0]) + k] : next++;
        for (const Spot& t : m.targets) values[number(t) + k] = made;
      }
    }
  }

  std::uint32_t make(std::uint32_t rank, std::uint32_t count, Operands sources, Operands targets) {
    made_[rank].push_back({count, instruction_, std::move(sources), std::move(targets)});
    const auto move = static_cast<std::uint32_t>(made_[rank].size() - 1);
    const Operand& target = made_[rank].back().targets[0];
    if (target.access != Access::plain) return move;
    const std::uint32_t first = places_.number(rank, target.buffer, target.chunk);
    for (std::uint32_t k = 0; k < count; ++k) writer_[first + k] = {move, k};
    return move;
  }

  Version version(const Spot& s, std::uint32_t count) const {
    std::vector<std::uint32_t> writers;
    for (std::uint32_t k = 0; k < count; ++k) writers.push_back(writer_[number(s) + k].move);
    return {number(s), count, std::move(writers)};
  }
  // The move that has written all these chunks, and none beside them; kNone: none.
  std::uint32_t maker(const Spot& s, std::uint32_t count) const {
    const std::uint32_t move = writer_[number(s)].move;
    if (move == kNone || made_[s.rank][move].count != count) return kNone;
    for (std::uint32_t k = 0; k < count; ++k) {
      const Writer& w = writer_[number(s) + k];
      if (w.move != move || w.chunk != k) return kNone;
    }
    return move;
  }

  static bool is_taken(const Made& m) { return m.sources.size() == 1 && m.sources[0].access == Access::packet; }

  // Packets of rank `to` with the value that a spot has now.
  Operand packets(const Spot& s, std::uint32_t count, std::uint32_t to) {
    if (s.rank == to) {
      const std::uint32_t from = maker(s, count);
      if (from != kNone && is_taken(made_[to][from])) return made_[to][from].sources[0];
    }
    const Version value = version(s, count);
    const auto [known, missing] = sent_.try_emplace({value, to}, Operand{});
    if (!missing) return known->second;
    const std::uint32_t first = (moves_.scratch_chunks[to] + 1) / 2 + packets_[to];
    const Operand target = known->second = {to, first, Buffer::scratch, Access::packet};
    packets_[to] += count;
    const std::uint32_t move = maker(s, count);
    Operands from{plain(s)};
    if (move != kNone) {
      Made& m = made_[s.rank][move];
      if (is_taken(m)) {
        from = m.sources;
      } else if (m.sources[0].access == Access::packet) {
        m.targets.push_back(target);
        return target;
      }
    }
    const auto [push, first_one] = pushes_.try_emplace({value, s.rank}, kNone);
    if (first_one) {
      push->second = make(s.rank, count, std::move(from), {target});
      made_[s.rank][push->second].first = std::ranges::all_of(std::get<2>(value), [](auto w) { return w == kNone; });
    } else {
      made_[s.rank][push->second].targets.push_back(target);
    }
    return target;
  }

  // `shared`: the terms of a sum that several ranks compute, in an order of theirs.
  void add(const Move& m, const std::vector<Spot>* shared) {
    const std::uint32_t rank = rank_of_[m.tb];
    const Operand target = plain(m.targets[0]);
    Operands own;
    std::vector<Spot> others;  // also what has come into scratch as packets
    for (const Spot& s : m.sources) {
      const std::uint32_t from = s.rank == rank && s.place.buffer == Buffer::scratch ? maker(s, m.count) : kNone;
      const bool came = from != kNone && is_taken(made_[rank][from]);
      if (s.rank == rank && !came) own.push_back(plain(s));
      if (s.rank != rank || came) others.push_back(s);
    }
    if (m.sources.size() == 1 && own.empty()) {
      const Operand from = packets(others[0], m.count, rank);
      for (const Spot& t : m.targets) make(rank, m.count, {from}, {plain(t)});
      return;
    }
    if (others.empty()) {
      make(rank, m.count, own, {target});
    } else {
      constexpr std::size_t kOrdered = 2;  // terms whose sum does not depend on their order
      const bool in_order = m.sources.size() > kOrdered && shared != nullptr;
      add_up(m, rank, in_order ? Operands{} : own, in_order ? *shared : others);
    }
    for (std::size_t t = 1; t < m.targets.size(); ++t) make(rank, m.count, {target}, {plain(m.targets[t])});
  }

  // Packets are added in their order, then one own value. Where other ranks compute the same sum, to the same bits,
  // that is its first term, whoever has it.
  void add_up(const Move& m, std::uint32_t rank, Operands own, std::vector<Spot> others) {
    const Operand target = plain(m.targets[0]);
    if (own.empty()) {
      const Spot first = others.front();
      others.erase(others.begin());
      own = {plain(first)};
      if (first.rank != rank) {
        const Operand from = packets(first, m.count, rank);
        Operands rest;  // before the target, which may be a term, is overwritten
        for (const Spot& s : others) rest.push_back(packets(s, m.count, rank));
        make(rank, m.count, {from}, {target});
        rest.push_back(target);
        make(rank, m.count, std::move(rest), {target});
        return;
      }
    }
    Operands sources;
    for (const Spot& s : others) sources.push_back(packets(s, m.count, rank));
    if (own.size() > 1) {
      make(rank, m.count, own, {target});
      own = {target};
    }
    sources.push_back(own[0]);
    make(rank, m.count, std::move(sources), {target});
  }

  // The places that a move touches besides packets.
  template <class Visit>
  void each(std::uint32_t rank, const Made& m, const Operands& operands, Visit visit) const {
    for (const Operand& o : operands) {
      if (o.access != Access::plain) continue;
      for (std::uint32_t k = 0; k < m.count; ++k) visit(places_.number(rank, o.buffer, o.chunk + k));
    }
  }

  // Leaves out moves to scratch that nothing loads.
  void drop_idle(std::uint32_t rank, std::vector<Made>& all) const {
    std::set<std::uint32_t> needed;
    for (auto m = all.rbegin(); m != all.rend(); ++m) {
      const Operand& target = m->targets[0];
      bool idle = target.access == Access::plain && target.buffer == Buffer::scratch && m->targets.size() == 1;
      each(rank, *m, m->targets, [&](std::uint32_t p) { idle = needed.erase(p) == 0 && idle; });
      if (idle) m->sources.clear();
      each(rank, *m, m->sources, [&](std::uint32_t p) { needed.insert(p); });
    }
    std::erase_if(all, [](const Made& m) { return m.sources.empty(); });
  }

  // What is sent first to each of the other ranks can be one operation of one threadblock.
  template <class Join>
  void join_first(const std::vector<Made>& all, Join join) const {
    std::uint32_t begin = 0;
    std::size_t targets = 0;
    for (std::uint32_t m = 0; m < all.size() && all[m].first; ++m) {
      const Operand& a = all[begin].sources[0];
      const Operand& b = all[m].sources[0];
      targets += all[m].targets.size();
      if (m == begin) continue;
      if (targets < program_.ranks.size() && a.buffer == b.buffer && all[begin].count == all[m].count) {
        join(m, begin);
      } else {
        begin = m;
        targets = all[m].targets.size();
      }
    }
  }

  // Moves that touch the same places are in one threadblock, others wait for their packets alone.
  void emit(std::uint32_t rank) {
    std::vector<Made>& all = made_[rank];
    drop_idle(rank, all);
    std::ranges::stable_partition(all, &Made::first);
    std::vector<std::uint32_t> part(all.size());
    std::iota(part.begin(), part.end(), 0U);
    const auto root = [&](std::uint32_t m) {
      while (part[m] != m) m = part[m] = part[part[m]];
      return m;
    };
    std::vector<std::vector<std::uint32_t>> needs(all.size());  // the earlier moves that one has to come after
    std::map<std::uint32_t, std::pair<std::uint32_t, std::vector<std::uint32_t>>> touched;  // writer, readers since
    for (std::uint32_t m = 0; m < all.size(); ++m) {
      const auto after = [&](std::uint32_t earlier) {
        if (earlier == kNone || earlier == m) return;
        needs[m].push_back(earlier);
        part[std::max(root(m), root(earlier))] = std::min(root(m), root(earlier));
      };
      each(rank, all[m], all[m].sources, [&](std::uint32_t p) {
        auto& [writer, readers] = touched.try_emplace(p, kNone, std::vector<std::uint32_t>()).first->second;
        after(writer);
        readers.push_back(m);
      });
      each(rank, all[m], all[m].targets, [&](std::uint32_t p) {
        auto& [writer, readers] = touched.try_emplace(p, kNone, std::vector<std::uint32_t>()).first->second;
        after(writer);
        std::ranges::for_each(readers, after);
        writer = m;
        readers.clear();
      });
    }
    join_first(all, [&](std::uint32_t m, std::uint32_t other) { part[root(m)] = root(other); });
    const std::uint32_t scratch = (moves_.scratch_chunks[rank] + 1) / 2 + packets_[rank];
    out_.ranks.push_back(
        {static_cast<std::uint32_t>(out_.threadblocks.size()), 0,
         packets_[rank] == 0 ? moves_.scratch_chunks[rank] : std::max(moves_.scratch_chunks[rank], scratch)});
    std::map<std::uint32_t, std::vector<std::uint32_t>> blocks;
    for (std::uint32_t m = 0; m < all.size(); ++m) blocks[root(m)].push_back(m);
    for (const auto& [number, members] : blocks) {
      ++out_.ranks.back().tb_count;
      out_.threadblocks.push_back({static_cast<std::uint32_t>(out_.steps.size()), 0});
      std::uint32_t synced = 0;  // moves before this one are done
      for (const std::uint32_t m : members) {
        if (std::ranges::any_of(needs[m], [&](std::uint32_t n) { return n >= synced; })) {
          step({Op::sync, false, 0, static_cast<std::uint32_t>(out_.objects.size()), 0, 0, kNone}, kNone);
          synced = m;
        }
        step({Op::move, false, all[m].count, static_cast<std::uint32_t>(out_.operands.size()),
              static_cast<std::uint32_t>(all[m].sources.size()), static_cast<std::uint32_t>(all[m].targets.size()),
              kNone},
             all[m].instruction);
        for (const Operands* operands : {&all[m].sources, &all[m].targets}) {
          out_.operands.insert(out_.operands.end(), operands->begin(), operands->end());
        }
      }
      out_.threadblocks.back().step_count =
          static_cast<std::uint32_t>(out_.steps.size()) - out_.threadblocks.back().first_step;
    }
  }

  void step(const ir::direct::Step& made, std::uint32_t instruction) {
    out_.steps.push_back(made);
    if (!program_.source.known()) return;
    out_.source.line_of.push_back(instruction == kNone ? kNone : program_.source.line_of[instruction]);
  }

  const ir::Program& program_;
  const Moves& moves_;
  ir::direct::Places places_;
  std::vector<std::uint32_t> rank_of_;
  std::vector<Writer> writer_;                                         // of each place
  std::vector<std::vector<Made>> made_;                                // per rank, in order
  std::vector<std::uint32_t> packets_;                                 // per rank: chunks of packets in its scratch
  std::vector<bool> shared_;                                           // per move: other ranks add up the same terms
  std::vector<std::vector<Spot>> in_order_;                            // per move: its sources, by their values
  std::map<std::pair<Version, std::uint32_t>, Operand> sent_;          // by receiver
  std::map<std::pair<Version, std::uint32_t>, std::uint32_t> pushes_;  // by sender: its move
  std::uint32_t instruction_ = 0;
  Program out_;
};

}  // namespace

Result<Program> lower_to_packets(const ir::Program& program) {
  GC3_ASSIGN(Moves moves, find_moves(program, true));
  moves = join(program, std::move(moves), false);
  return PacketWriter(program, moves).run();
}

}  // namespace gc3::compiler::direct
