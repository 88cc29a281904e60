#include "gc3/compiler/direct/moves.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/interrupt.h"
#include "gc3/ir/connections.h"
#include "gc3/ir/index.h"

namespace gc3::compiler::direct {
namespace {

using ir::Instruction;
using ir::OpcodeInfo;
using ir::ProgramIndex;
using ir::Step;
using model::Buffer;

struct Term {
  Spot spot;
  std::uint32_t taken_by =
      kNone;  // the instruction of the spot's rank that sends it; kNone: of the storing rank itself
};
using Terms = std::vector<Term>;

// Executes the program step by step with sets of terms as values. A spot whose value is under way in messages is not
// overwritten before these have been kept somewhere.
class MoveFinder {
 public:
  MoveFinder(const ProgramIndex& index, const ir::Connections& connections, const std::vector<bool>& aside)
      : index_(index),
        connections_(connections),
        aside_(aside),
        program_(index.program()),
        next_(program_.threadblocks.size()),
        sent_(connections.all.size()),
        received_(connections.all.size()),
        messages_(connections.chunks) {
    for (const ir::RankProgram& rank : program_.ranks) found_.scratch_chunks.push_back(rank.scratch_chunks);
  }

  // None: all steps are done. Otherwise the instructions whose values have to be put aside for the program to go on.
  std::optional<std::vector<std::uint32_t>> run() {
    Breath breathe;
    std::size_t left = program_.instructions.size();
    for (bool moved = true; moved && left > 0;) {
      moved = false;
      held_up_.clear();
      // One step of each threadblock at a time, so that no sender is far ahead of its receiver.
      for (std::uint32_t t = 0; t < next_.size(); ++t) {
        breathe();
        if (next_[t] == program_.threadblocks[t].instruction_count || !execute({t, next_[t]})) continue;
        ++next_[t];
        --left;
        moved = true;
      }
    }
    if (left == 0) return std::nullopt;
    return held_up_;
  }
  Moves take() {
    std::erase_if(found_.all, [](const Move& m) { return m.count == 0; });
    return std::move(found_);
  }

 private:
  using Key = std::pair<std::uint32_t, std::pair<Buffer, std::uint32_t>>;
  static Key key(const Spot& s) { return {s.rank, {s.place.buffer, s.place.index}}; }

  Spot spot(std::uint32_t rank, Buffer buffer, std::uint32_t chunk) const {
    return {rank, program_.collective.canonical(rank, {buffer, chunk})};
  }
  std::uint32_t number(Step s) const { return program_.threadblocks[s.tb].first_instruction + s.step; }

  std::uint32_t threadblock_of(std::uint32_t instruction) const {
    const auto after =
        std::ranges::upper_bound(program_.threadblocks, instruction, {}, &ir::Threadblock::first_instruction);
    return static_cast<std::uint32_t>(after - program_.threadblocks.begin()) - 1;
  }

  bool may_run(Step s, const Instruction& i, std::uint32_t rank) const {
    const auto deps = program_.deps(i);
    const bool waits = std::ranges::any_of(deps, [&](const ir::Dependency& d) {
      const Step awaited = index_.awaited(rank, d);
      return next_[awaited.tb] <= awaited.step;
    });
    if (waits) return false;
    if (!ir::info(i.opcode).receives) return true;
    const std::uint32_t c = connections_.receiving[s.tb];
    return received_[c] < sent_[c];
  }

  bool execute(Step s) {
    const Instruction& i = index_.instruction(s);
    const OpcodeInfo& op = ir::info(i.opcode);
    const std::uint32_t rank = index_.rank_of(s.tb);
    if (!may_run(s, i, rank)) return false;
    std::vector<Terms> values(i.count);
    for (std::uint32_t k = 0; k < i.count; ++k) {
      if (op.updates_dst()) add(values[k], spot(rank, i.dst_buffer, i.dst_chunk + k));
      if (op.receives) {
        const std::uint32_t c = connections_.receiving[s.tb];
        for (const Term& t : messages_[connections_.all[c].first_chunk + received_[c] + k]) values[k].push_back(t);
      }
      if (op.reads_local) add(values[k], spot(rank, i.src_buffer, i.src_chunk + k));
    }
    if (may_defer(i, values) && !aside_[number(s)]) {
      if (op.receives) received_[connections_.receiving[s.tb]] += i.count;
      defer(i, rank, values, number(s));
      return true;
    }
    if (op.writes_local && !free_to_write(i, rank, values)) return false;
    if (op.receives) received_[connections_.receiving[s.tb]] += i.count;
    const std::uint32_t number_of_step = number(s);
    const bool aside = op.sends && aside_[number_of_step];
    if (op.writes_local || aside) {
      std::uint32_t first_aside = 0;
      if (aside) {
        first_aside = found_.scratch_chunks[rank];
        found_.scratch_chunks[rank] += i.count;
      }
      keep(s, i, rank, values, aside ? std::optional(first_aside) : std::nullopt);
      for (std::uint32_t k = 0; k < i.count; ++k) {
        for (const Term& t : values[k]) release(t);
        if (op.writes_local) forget(spot(rank, i.dst_buffer, i.dst_chunk + k));
        if (aside) {
          values[k] = {{{rank, {Buffer::scratch, first_aside + k}}, number_of_step}};
        } else {
          values[k] = {{spot(rank, i.dst_buffer, i.dst_chunk + k), kNone}};
        }
      }
    }
    if (op.sends) send(s, values, number_of_step);
    return true;
  }

  // What a spot holds; of a copy that was deferred, where it is.
  void add(Terms& value, const Spot& from) const {
    const auto at = deferred_.find(key(from));
    value.push_back({at == deferred_.end() ? from : at->second.spot, kNone});
  }
  // A copy into scratch is left out: who reads it there reads the original. If that is to be overwritten before, the
  // copy is made after all: `aside_`.
  static bool may_defer(const Instruction& i, const std::vector<Terms>& values) {
    const OpcodeInfo& op = ir::info(i.opcode);
    return op.writes_local && !op.sends && i.dst_buffer == Buffer::scratch &&
           std::ranges::all_of(values, [](const Terms& v) { return v.size() == 1; });
  }
  void defer(const Instruction& i, std::uint32_t rank, std::vector<Terms>& values, std::uint32_t number_of_step) {
    for (std::uint32_t k = 0; k < i.count; ++k) {
      release(values[k][0]);
      const Spot here = spot(rank, i.dst_buffer, i.dst_chunk + k);
      forget(here);
      Term& kept = deferred_[key(here)] = {values[k][0].spot, number_of_step};
      under_way_[key(kept.spot)].push_back(number_of_step);
    }
  }
  void forget(const Spot& overwritten) {
    const auto at = deferred_.find(key(overwritten));
    if (at == deferred_.end()) return;
    release(at->second);
    deferred_.erase(at);
  }

  void send(Step s, std::vector<Terms>& values, std::uint32_t number_of_step) {
    const std::uint32_t c = connections_.sending[s.tb];
    for (Terms& value : values) {
      for (Term& t : value) {
        if (t.taken_by != kNone) continue;
        t.taken_by = number_of_step;
        under_way_[key(t.spot)].push_back(number_of_step);
      }
      messages_[connections_.all[c].first_chunk + sent_[c]++] = std::move(value);
    }
  }

  void release(const Term& t) {
    if (t.taken_by == kNone) return;
    const auto at = under_way_.find(key(t.spot));
    if (at == under_way_.end()) return;  // put aside
    const auto one = std::ranges::find(at->second, t.taken_by);
    if (one != at->second.end()) at->second.erase(one);
    if (at->second.empty()) under_way_.erase(at);
  }

  // Whether no message but those of `values` still needs what the step overwrites.
  bool free_to_write(const Instruction& i, std::uint32_t rank, const std::vector<Terms>& values) {
    bool free = true;
    for (std::uint32_t k = 0; k < i.count; ++k) {
      const Spot target = spot(rank, i.dst_buffer, i.dst_chunk + k);
      const auto at = under_way_.find(key(target));
      if (at == under_way_.end()) continue;
      const auto own =
          std::ranges::count_if(values[k], [&](const Term& t) { return t.spot == target && t.taken_by != kNone; });
      if (std::cmp_equal(own, at->second.size())) continue;
      free = false;
      held_up_.insert(held_up_.end(), at->second.begin(), at->second.end());
    }
    return free;
  }

  static bool follows(const Spot& a, const Spot& b, std::uint32_t by) {
    return a.rank == b.rank && a.place.buffer == b.place.buffer && a.place.index + by == b.place.index;
  }

  // One move, or several where the terms of consecutive chunks are not consecutive.
  void keep(Step s, const Instruction& i, std::uint32_t rank, const std::vector<Terms>& values,
            std::optional<std::uint32_t> aside) {
    Move move;
    for (std::uint32_t k = 0; k < i.count; ++k) {
      std::vector<Spot> sources;
      std::vector<Spot> targets;
      for (const Term& t : values[k]) sources.push_back(t.spot);
      if (ir::info(i.opcode).writes_local) targets.push_back(spot(rank, i.dst_buffer, i.dst_chunk + k));
      if (aside) targets.push_back({rank, {Buffer::scratch, *aside + k}});
      const auto next = [&](const Spot& a, const Spot& b) { return follows(a, b, move.count); };
      const bool more = move.count != 0 && std::ranges::equal(move.sources, sources, next) &&
                        std::ranges::equal(move.targets, targets, next);
      if (!more && move.count != 0) found_.all.push_back(std::move(move));
      if (!more) {
        const bool sent = sources.size() == 1 && values[k][0].taken_by != kNone;
        const std::uint32_t sender = sent ? threadblock_of(values[k][0].taken_by) : kNone;
        const bool reduces = !program_.switched.empty() && program_.switched[number(s)].reduction != kNone;
        move = {s.tb, number(s), 0, std::move(sources), std::move(targets), sender, reduces};
      }
      ++move.count;
    }
    if (move.count != 0) found_.all.push_back(std::move(move));
  }

  const ProgramIndex& index_;
  const ir::Connections& connections_;
  const std::vector<bool>& aside_;  // per instruction: whether its value is put aside, or its copy not deferred
  const ir::Program& program_;
  std::vector<std::uint32_t> next_;  // per threadblock: its next step
  std::vector<std::size_t> sent_;    // per connection, in chunks
  std::vector<std::size_t> received_;
  std::vector<Terms> messages_;                          // per chunk of all messages
  std::map<Key, std::vector<std::uint32_t>> under_way_;  // the instructions that have sent what the spot holds
  std::map<Key, Term> deferred_;                         // scratch whose value is elsewhere
  std::vector<std::uint32_t> held_up_;
  Moves found_;
};

}  // namespace

Result<Moves> find_moves(const ir::Program& program, bool defers) {
  GC3_CHECK(ir::check_plain(program, "a one-sided program"));
  GC3_ASSIGN(const ir::Connections connections, ir::checked_connections(program));
  const ProgramIndex index(program);
  std::vector<bool> aside(program.instructions.size());
  if (!defers) {
    for (std::size_t k = 0; k < aside.size(); ++k) aside[k] = !ir::info(program.instructions[k].opcode).sends;
  }
  for (;;) {
    MoveFinder finder(index, connections, aside);
    const auto held_up = finder.run();
    if (!held_up) return finder.take();
    const auto known = [&](std::uint32_t i) { return aside[i]; };
    if (std::ranges::all_of(*held_up, known)) return Diagnostic(ErrorCode::Internal, "steps wait for each other");
    for (const std::uint32_t i : *held_up) aside[i] = true;
  }
}

}  // namespace gc3::compiler::direct
