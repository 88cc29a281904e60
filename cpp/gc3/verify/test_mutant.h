// Random damage of a program, for the mutation tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "gc3/ir/program.h"
#include "gc3/verify/test_programs.h"

namespace gc3::verify::test {
namespace damage {

using ir::Dependency;
using ir::Instruction;
using ir::Opcode;
using ir::Program;

// A program being damaged. A mutation returns false if the program has nothing that it applies to.
class Mutant {
 public:
  Mutant(Program program, std::mt19937_64& random) : p_(std::move(program)), random_(random) {}
  const Program& program() const { return p_; }

  bool drop_dependency() {
    Instruction* i = pick([](const Instruction& x) { return x.dep_count > 0; });
    if (i == nullptr) return false;
    std::swap(p_.dependencies[i->dep_begin + below(i->dep_count)], p_.dependencies[i->dep_begin + i->dep_count - 1]);
    --i->dep_count;
    return true;
  }
  bool move_dependency() {
    Instruction* i = pick([](const Instruction& x) { return x.dep_count > 0; });
    if (i == nullptr) return false;
    const ir::RankProgram& rank = p_.ranks[rank_of(*i)];
    Dependency& d = p_.dependencies[i->dep_begin + below(i->dep_count)];
    if (below(4) == 0) d.tb = below(rank.tb_count);
    const ir::Threadblock& tb = p_.threadblocks[rank.first_tb + d.tb];
    d.step = below(std::max(1U, tb.instruction_count));
    if (d.step < tb.instruction_count) p_.instructions[tb.first_instruction + d.step].has_dependents = 1;
    return true;
  }
  bool add_dependency() {
    Instruction* i = pick([](const Instruction&) { return true; });
    const ir::RankProgram& rank = p_.ranks[rank_of(*i)];
    const std::uint32_t t = below(rank.tb_count);
    const ir::Threadblock& tb = p_.threadblocks[rank.first_tb + t];
    if (tb.instruction_count == 0) return false;
    const Dependency d{t, below(tb.instruction_count)};
    p_.instructions[tb.first_instruction + d.step].has_dependents = 1;
    // The dependencies of a step are consecutive, so the table is rebuilt.
    std::vector<Dependency> table;
    for (Instruction& x : p_.instructions) {
      const auto old = p_.deps(x);
      const auto begin = static_cast<std::uint32_t>(table.size());
      table.insert(table.end(), old.begin(), old.end());
      if (&x == i) table.push_back(d);
      x.dep_begin = begin;
      x.dep_count = static_cast<std::uint32_t>(table.size()) - begin;
    }
    p_.dependencies = std::move(table);
    return true;
  }
  bool unmark_dependents() {
    Instruction* i = pick([](const Instruction& x) { return x.has_dependents != 0; });
    if (i == nullptr) return false;
    i->has_dependents = 0;
    return true;
  }
  bool mark_dependents() {
    Instruction* i = pick([](const Instruction& x) { return x.has_dependents == 0; });
    if (i == nullptr) return false;
    i->has_dependents = 1;
    return true;
  }
  bool swap_neighbours() { return swap_steps(1); }
  bool swap_distant() { return swap_steps(2 + below(4)); }
  bool redirect_peer() {
    ir::Threadblock& tb = p_.threadblocks[below(static_cast<std::uint32_t>(p_.threadblocks.size()))];
    std::uint32_t& peer = below(2) == 0 ? tb.send_peer : tb.recv_peer;
    peer = below(static_cast<std::uint32_t>(p_.ranks.size()));
    return true;
  }
  // Two threadblocks of a rank exchange their receive (send) peers, or all that they are connected to.
  bool exchange_peers() {
    const ir::RankProgram& rank = p_.ranks[below(static_cast<std::uint32_t>(p_.ranks.size()))];
    if (rank.tb_count < 2) return false;
    ir::Threadblock& a = p_.threadblocks[rank.first_tb + below(rank.tb_count)];
    ir::Threadblock& b = p_.threadblocks[rank.first_tb + below(rank.tb_count)];
    const std::uint32_t what = below(3);
    if (what != 0) std::swap(a.send_peer, b.send_peer);
    if (what != 1) std::swap(a.recv_peer, b.recv_peer);
    if (what == 2) std::swap(a.channel, b.channel);
    return true;
  }
  bool change_channel() {
    p_.threadblocks[below(static_cast<std::uint32_t>(p_.threadblocks.size()))].channel = below(3);
    return true;
  }
  bool change_source() {
    Instruction* i = pick([](const Instruction& x) { return ir::info(x.opcode).reads_local; });
    if (i == nullptr) return false;
    i->src_chunk = near(i->src_chunk);
    return true;
  }
  bool change_destination() {
    Instruction* i = pick([](const Instruction& x) { return ir::info(x.opcode).writes_local; });
    if (i == nullptr) return false;
    i->dst_chunk = near(i->dst_chunk);
    return true;
  }
  bool change_buffer() {
    Instruction* i = pick([](const Instruction& x) { return x.opcode != Opcode::nop; });
    if (i == nullptr) return false;
    const ir::OpcodeInfo& op = ir::info(i->opcode);
    const bool source = op.reads_local && (!op.writes_local || below(2) == 0);
    (source ? i->src_buffer : i->dst_buffer) = static_cast<Buffer>(below(3));
    return true;
  }
  bool change_count() {
    Instruction* i = pick([](const Instruction& x) { return x.opcode != Opcode::nop; });
    if (i == nullptr) return false;
    i->count = below(2) == 0 ? i->count + 1 : i->count - 1;
    return true;
  }
  // The same change at both ends of a message, so that it still matches.
  bool change_message_count() {
    const auto [send, recv] = pick_message();
    if (send == nullptr) return false;
    const std::uint32_t count = send->count == 1 || below(2) == 0 ? send->count + 1 : send->count - 1;
    send->count = count;
    recv->count = count;
    return true;
  }
  bool drop_send() {
    Instruction* i = pick([](const Instruction& x) { return ir::info(x.opcode).sends; });
    if (i == nullptr) return false;
    without_send(*i);
    return true;
  }
  bool drop_receive() {
    Instruction* i = pick([](const Instruction& x) { return ir::info(x.opcode).receives; });
    if (i == nullptr) return false;
    without_receive(*i);
    return true;
  }
  bool drop_message() {
    const auto [send, recv] = pick_message();
    if (send == nullptr) return false;
    without_send(*send);
    without_receive(*recv);
    return true;
  }
  bool drop_step() {
    Instruction* i =
        pick([](const Instruction& x) { return !ir::info(x.opcode).sends && !ir::info(x.opcode).receives; });
    if (i == nullptr) return false;
    to_nop(*i);
    return true;
  }
  bool change_opcode() {
    Instruction* i = pick([](const Instruction&) { return true; });
    i->opcode = static_cast<Opcode>(below(static_cast<std::uint32_t>(ir::kOpcodeCount)));
    return true;
  }
  // Changes the step to an opcode with the same receives and sends.
  bool change_to_kin() {
    Instruction* i = pick([](const Instruction& x) { return x.opcode != Opcode::nop && x.opcode != Opcode::send; });
    if (i == nullptr) return false;
    const ir::OpcodeInfo& old = ir::info(i->opcode);
    while (true) {
      const auto opcode = static_cast<Opcode>(1 + below(static_cast<std::uint32_t>(ir::kOpcodeCount) - 1));
      const ir::OpcodeInfo& op = ir::info(opcode);
      if (opcode == i->opcode || op.receives != old.receives || op.sends != old.sends) continue;
      i->opcode = opcode;
      return true;
    }
  }
  // Another chunk, near or anywhere, for an operand or a result of an operation.
  bool change_operand() {
    if (p_.compute.operands.empty()) return false;
    ir::Operand& o = p_.compute.operands[below(static_cast<std::uint32_t>(p_.compute.operands.size()))];
    if (below(3) == 0) {
      o.buffer = static_cast<Buffer>(below(3));
    } else {
      o.chunk = near(o.chunk);
    }
    return true;
  }
  bool swap_operands() {
    if (p_.compute.applications.empty()) return false;
    const ir::Application& a =
        p_.compute.applications[below(static_cast<std::uint32_t>(p_.compute.applications.size()))];
    ir::Operand* const reads = p_.compute.operands.data() + a.first;
    if (a.reads < 2) return false;
    const std::uint32_t k = below(a.reads - 1);
    std::swap(reads[k], reads[k + 1]);
    return true;
  }
  bool change_operation() {
    if (p_.compute.applications.empty()) return false;
    ir::Application& a = p_.compute.applications[below(static_cast<std::uint32_t>(p_.compute.applications.size()))];
    a.operation = below(static_cast<std::uint32_t>(p_.collective.custom_data()->operations.size()));
    return true;
  }
  // Its table of applications again in the order of the steps, which other mutations change.
  void number_applications() {
    ir::Compute old = std::move(p_.compute);
    p_.compute = {old.lengths, {}, {}};
    for (Instruction& i : p_.instructions) {
      if (i.opcode != Opcode::apply) continue;
      if (i.src_chunk >= old.applications.size()) i.src_chunk = 0;  // a step that was of another opcode
      ir::Application a = old.applications[i.src_chunk];
      const auto operands = old.operands_of(a);
      a.first = static_cast<std::uint32_t>(p_.compute.operands.size());
      i.src_chunk = static_cast<std::uint32_t>(p_.compute.applications.size());
      i.src_buffer = i.dst_buffer = Buffer::input;
      i.dst_chunk = 0;
      i.count = a.reads + a.writes;
      p_.compute.applications.push_back(a);
      p_.compute.operands.insert(p_.compute.operands.end(), operands.begin(), operands.end());
    }
  }
  bool lower_slots() {
    if (p_.slots == 0) return false;
    p_.slots = p_.slots > 1 ? 1 + below(p_.slots - 1) : 0;
    return true;
  }

 private:
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  std::uint32_t near(std::uint32_t chunk) {
    return below(3) == 0 ? below(8) : below(2) == 0 || chunk == 0 ? chunk + 1 : chunk - 1;
  }

  template <class Wanted>
  Instruction* pick(Wanted wanted) {
    std::vector<Instruction*> all;
    for (Instruction& i : p_.instructions) {
      if (wanted(i)) all.push_back(&i);
    }
    return all.empty() ? nullptr : all[below(static_cast<std::uint32_t>(all.size()))];
  }
  std::uint32_t tb_of(const Instruction& i) const {
    const auto id = static_cast<std::uint32_t>(&i - p_.instructions.data());
    std::uint32_t t = 0;
    while (id < p_.threadblocks[t].first_instruction ||
           id >= p_.threadblocks[t].first_instruction + p_.threadblocks[t].instruction_count) {
      ++t;
    }
    return t;
  }
  std::uint32_t rank_of(const Instruction& i) const {
    const std::uint32_t t = tb_of(i);
    std::uint32_t r = 0;
    while (t < p_.ranks[r].first_tb || t >= p_.ranks[r].first_tb + p_.ranks[r].tb_count) ++r;
    return r;
  }

  // Removes a send and its receive.
  std::pair<Instruction*, Instruction*> pick_message() {
    Instruction* send = pick([](const Instruction& x) { return ir::info(x.opcode).sends; });
    if (send == nullptr) return {nullptr, nullptr};
    const std::uint32_t rank = rank_of(*send);
    const ir::Threadblock& from = p_.threadblocks[tb_of(*send)];
    std::uint32_t skip = 0;
    for (const Instruction* x = &p_.instructions[from.first_instruction]; x != send; ++x) {
      if (ir::info(x->opcode).sends) ++skip;
    }
    if (from.send_peer >= p_.ranks.size()) return {nullptr, nullptr};
    for (const ir::Threadblock& to : p_.tbs(from.send_peer)) {
      if (to.recv_peer != rank || to.channel != from.channel) continue;
      for (std::uint32_t k = 0; k < to.instruction_count; ++k) {
        Instruction& x = p_.instructions[to.first_instruction + k];
        if (ir::info(x.opcode).receives && skip-- == 0) return {send, &x};
      }
    }
    return {nullptr, nullptr};
  }

  static void to_nop(Instruction& i) {
    i.opcode = Opcode::nop;
    i.count = 0;
  }
  // The rest of a step without its send or receive. If it stored no data, it now stores it at its operand.
  static void without_send(Instruction& i) {
    const ir::OpcodeInfo& op = ir::info(i.opcode);
    if (!op.receives) return to_nop(i);
    if (!op.writes_local) {
      i.dst_buffer = i.src_buffer;
      i.dst_chunk = i.src_chunk;
    }
    i.opcode = op.reduces ? Opcode::recv_reduce_copy : Opcode::recv;
  }
  static void without_receive(Instruction& i) {
    const ir::OpcodeInfo& op = ir::info(i.opcode);
    if (!op.reads_local && !op.sends) return to_nop(i);
    if (!op.reads_local) {
      i.src_buffer = i.dst_buffer;
      i.src_chunk = i.dst_chunk;
    }
    i.opcode = op.sends ? Opcode::send : Opcode::copy;
  }

  // Exchanges operands and dependencies; dependents of either step wait for the step that is now there.
  bool swap_steps(std::uint32_t apart) {
    const ir::Threadblock& tb = p_.threadblocks[below(static_cast<std::uint32_t>(p_.threadblocks.size()))];
    if (tb.instruction_count <= apart) return false;
    Instruction& a = p_.instructions[tb.first_instruction + below(tb.instruction_count - apart)];
    Instruction& b = *(&a + apart);
    std::swap(a, b);
    std::swap(a.has_dependents, b.has_dependents);
    return true;
  }

  Program p_;
  std::mt19937_64& random_;
};

struct Mutation {
  const char* name;
  bool (Mutant::*apply)();
};
inline constexpr Mutation kMutations[] = {
    {"drop a dependency", &Mutant::drop_dependency},
    {"move a dependency", &Mutant::move_dependency},
    {"add a dependency", &Mutant::add_dependency},
    {"unmark an awaited step", &Mutant::unmark_dependents},
    {"mark a step nobody awaits", &Mutant::mark_dependents},
    {"swap neighbouring steps", &Mutant::swap_neighbours},
    {"swap distant steps", &Mutant::swap_distant},
    {"redirect a peer", &Mutant::redirect_peer},
    {"exchange peers", &Mutant::exchange_peers},
    {"change a channel", &Mutant::change_channel},
    {"change a source chunk", &Mutant::change_source},
    {"change a destination chunk", &Mutant::change_destination},
    {"change a buffer", &Mutant::change_buffer},
    {"change a count", &Mutant::change_count},
    {"change a message's count", &Mutant::change_message_count},
    {"drop a send", &Mutant::drop_send},
    {"drop a receive", &Mutant::drop_receive},
    {"drop a message", &Mutant::drop_message},
    {"drop a local step", &Mutant::drop_step},
    {"change an opcode", &Mutant::change_opcode},
    {"change to a similar opcode", &Mutant::change_to_kin},
    {"lower the slots", &Mutant::lower_slots},
    {"change an operand", &Mutant::change_operand},
    {"swap operands", &Mutant::swap_operands},
    {"change an operation", &Mutant::change_operation},
};

}  // namespace damage

using damage::kMutations;
using damage::Mutant;
using damage::Mutation;

}  // namespace gc3::verify::test
