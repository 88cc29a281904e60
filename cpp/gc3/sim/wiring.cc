#include "gc3/sim/wiring.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "gc3/base/errors/model.h"
#include "gc3/base/errors/simulator.h"
#include "gc3/base/interrupt.h"
#include "gc3/ir/connections.h"

namespace gc3::sim {
namespace {

class Builder {
 public:
  Builder(const ir::Program& program, const Machine& machine, const std::vector<std::uint32_t>& places)
      : program_(program), machine_(machine), places_(places) {}

  Result<Wiring> run(const std::vector<Joined>& joined, std::vector<std::uint32_t> numbers) {
    out_.numbers = std::move(numbers);
    const std::size_t tbs = program_.threadblocks.size();
    out_.rank_of.resize(tbs);
    out_.sending.assign(tbs, kNone);
    out_.receiving.assign(tbs, kNone);
    out_.instructions = program_.instructions.size();
    out_.combined.resize(program_.instructions.size());
    for (std::uint32_t r = 0; r < program_.ranks.size(); ++r) {
      const ir::RankProgram& rank = program_.ranks[r];
      for (std::uint32_t t = 0; t < rank.tb_count; ++t) out_.rank_of[rank.first_tb + t] = r;
    }
    Breath breathe;
    for (const ir::Instruction& i : program_.instructions) {
      breathe();
      if (ir::info(i.opcode).sends) out_.max_count = std::max(out_.max_count, i.count);
    }
    for (std::uint32_t r = 0; r < program_.ranks.size() && !machine_.data().memory.empty(); ++r) {
      out_.memory.push_back(machine_.data().memory[place(out_.number(r))]);
    }
    for (const Joined& c : joined) GC3_CHECK(add(c));
    forget_single();
    return std::move(out_);
  }

 private:
  std::uint32_t place(std::uint32_t rank) const { return places_.empty() ? rank : places_[rank]; }

  Status add(const Joined& c) {
    const auto [send_tb, recv_tb, src, dst] = c;
    const auto route = machine_.route(place(src), place(dst), program_.threadblocks[send_tb].channel);
    if (!route) {
      const std::uint32_t own = send_tb - program_.ranks[out_.rank_of[send_tb]].first_tb;
      return Diagnostic(ErrorCode::NoPath, "rank " + std::to_string(src) + " sends to rank " + std::to_string(dst) +
                                               " (threadblock " + std::to_string(own) + ")");
    }
    const auto id = static_cast<std::uint32_t>(out_.wires.size());
    out_.sending[c.send_tb] = id;
    out_.receiving[c.recv_tb] = id;
    Wire wire;
    wire.send_tb = c.send_tb;
    wire.recv_tb = c.recv_tb;
    wire.link_class = route->link_class;
    wire.out = intern(route->out);
    wire.into = intern(route->into);
    GC3_CHECK(move(wire, src, dst));
    follow(out_.wires.emplace_back(wire));
    return {};
  }

  // Who moves the messages: the way back of requests, or an engine.
  Status move(Wire& wire, std::uint32_t src, std::uint32_t dst) {
    const LinkClass& kind = machine_.data().classes[wire.link_class];
    if (kind.requests > 0) {
      const auto back = machine_.route(place(dst), place(src), program_.threadblocks[wire.send_tb].channel);
      if (!back) {
        return Diagnostic(ErrorCode::NoPath, "rank " + std::to_string(dst) + " pulls from rank " + std::to_string(src) +
                                                 ", to which its requests have no path");
      }
      wire.back_out = intern(back->out);
      wire.back_into = intern(back->into);
    }
    if (kind.engines) {
      const std::vector<std::uint32_t>& engines = machine_.data().engines[place(src)];
      std::map<std::uint32_t, std::uint32_t>& peers = peers_[src];
      const auto next = static_cast<std::uint32_t>(peers.size());
      wire.engine = engines[peers.try_emplace(dst, next).first->second % engines.size()];
    }
    out_.pushed = out_.pushed && kind.requests == 0 && !kind.engines;
    return {};
  }

  // Finds the receive of each send.
  void follow(Wire& wire) {
    const ir::Threadblock& to = program_.threadblocks[wire.recv_tb];
    const ir::Threadblock& from = program_.threadblocks[wire.send_tb];
    std::uint32_t taken = to.first_instruction;
    for (std::uint32_t k = from.first_instruction; k != from.first_instruction + from.instruction_count; ++k) {
      const ir::Instruction& sent = program_.instructions[k];
      if (!ir::info(sent.opcode).sends) continue;
      while (!ir::info(program_.instructions[taken].opcode).receives) ++taken;
      if (!program_.switched.empty()) carry(wire, k, taken);
      const ir::OpcodeInfo& use = ir::info(program_.instructions[taken++].opcode);
      out_.combined[k] = use.reduces || use.sends ? 1 : 0;
      (out_.combined[k] != 0 ? wire.combined : wire.moved) += sent.count;
    }
  }

  // The message that instruction `sent` sends and `taken` receives. Ways are equal if they begin at the same place.
  void carry(const Wire& wire, std::uint32_t sent, std::uint32_t taken) {
    if (machine_.data().classes[wire.link_class].in_switch == 0) return;
    out_.carried.resize(program_.instructions.size());
    const auto number = [&](Ways& ways, std::uint32_t group, Slice way) {
      if (group == kNone || way.count == 0) return kNone;  // a direct link is a way to one rank only
      const auto fresh = static_cast<std::uint32_t>(out_.group_size.size());
      const std::uint32_t found = ways.try_emplace({group, way.first}, fresh).first->second;
      if (found == fresh) out_.group_size.push_back(0);
      ++out_.group_size[found];
      return found;
    };
    out_.carried[sent].out = number(multicasts_, program_.switched[sent].multicast, wire.out);
    const std::uint32_t sum = number(reductions_, program_.switched[taken].reduction, wire.into);
    out_.carried[sent].into = out_.carried[taken].received = sum;
    out_.carried[sent].whole = {program_.switched[sent].multicast, program_.switched[taken].reduction};
  }

  // A message alone in its group is a plain one.
  void forget_single() {
    const auto forget = [&](std::uint32_t& group) {
      if (group != kNone && out_.group_size[group] == 1) group = kNone;
    };
    for (Carried& c : out_.carried) {
      forget(c.out);
      forget(c.into);
      forget(c.received);
    }
  }

  Slice intern(std::span<const std::uint32_t> way) {
    if (way.empty()) return {};
    if (const auto found = interned_.find(way.data()); found != interned_.end()) return found->second;
    const Slice made{static_cast<std::uint32_t>(out_.resources.size()), static_cast<std::uint32_t>(way.size())};
    out_.resources.insert(out_.resources.end(), way.begin(), way.end());
    interned_.emplace(way.data(), made);
    return made;
  }

  const ir::Program& program_;
  const Machine& machine_;
  const std::vector<std::uint32_t>& places_;
  Wiring out_;
  std::map<std::uint32_t, std::map<std::uint32_t, std::uint32_t>> peers_;  // by rank: those it sends to, numbered
  using Ways = std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>;  // group and way -> number
  Ways multicasts_;
  Ways reductions_;
  std::unordered_map<const std::uint32_t*, Slice> interned_;
};

}  // namespace

Status check_places(const std::vector<std::uint32_t>& places, const std::string& name, std::size_t ranks,
                    const Machine& machine) {
  const auto of = [&] { return "'" + name + "' has " + std::to_string(ranks) + " ranks"; };
  if (ranks > machine.ranks())
    return Diagnostic(ErrorCode::TooFewRanks, of() + ", the machine " + std::to_string(machine.ranks()));
  if (places.empty()) return {};
  if (places.size() != ranks)
    return bad_simulation(of() + "; " + std::to_string(places.size()) + " ranks of the machine are named for them");
  std::vector<bool> taken(machine.ranks());
  for (const std::uint32_t p : places) {
    if (p >= taken.size()) {
      return bad_simulation("rank " + std::to_string(p) + " of the machine does not exist; it has " +
                            std::to_string(taken.size()));
    }
    if (taken[p]) return bad_simulation("rank " + std::to_string(p) + " of the machine is named twice");
    taken[p] = true;
  }
  return {};
}

Result<Wiring> wire(const ir::Program& program, const Machine& machine, const std::vector<std::uint32_t>& places) {
  GC3_CHECK(check_places(places, program.name, program.ranks.size(), machine));
  GC3_ASSIGN(const ir::Connections connections, ir::checked_connections(program));
  const ir::ProgramIndex index(program);
  std::vector<Joined> joined;
  for (const ir::Connection& c : connections.all) {
    if (c.messages != 0) joined.push_back({c.send_tb, c.recv_tb, index.rank_of(c.send_tb), index.rank_of(c.recv_tb)});
  }
  return wire(program, machine, places, joined, {});
}

Result<Wiring> wire(const ir::Program& program, const Machine& machine, const std::vector<std::uint32_t>& places,
                    const std::vector<Joined>& joined, std::vector<std::uint32_t> numbers) {
  return Builder(program, machine, places).run(joined, std::move(numbers));
}

std::string step_name(const ir::Program& program, const Wiring& wiring, std::uint32_t tb, std::uint32_t step) {
  const std::uint32_t rank = wiring.rank_of[tb];
  const std::uint32_t at = program.threadblocks[tb].first_instruction + step;
  const ir::Instruction& i = program.instructions[at];
  std::string what(ir::info(i.opcode).xml);
  if (i.opcode == ir::Opcode::apply)
    what += " " + program.collective.custom_data()->operations[program.compute.applications[i.src_chunk].operation];
  return "rank " + std::to_string(wiring.number(rank)) + " threadblock " +
         std::to_string(tb - program.ranks[rank].first_tb) + " step " + std::to_string(step) +
         ir::in_brackets(what, program.source, at);
}

}  // namespace gc3::sim
