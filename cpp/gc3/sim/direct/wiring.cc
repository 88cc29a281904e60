#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "gc3/base/errors/model.h"
#include "gc3/base/errors/simulator.h"
#include "gc3/base/interrupt.h"
#include "gc3/sim/direct/simulator.h"
#include "gc3/sim/work.h"

namespace gc3::sim::direct {

namespace {

constexpr const char* kTogether = " is in a group with rank ";

// Finds what the operands of a program occupy on a machine.
class Wiring {
 public:
  Wiring(const ir::direct::Program& program, const Machine& machine, const std::vector<std::uint32_t>& places)
      : program_(program), machine_(machine), places_(places) {
    out_.program = &program;
    out_.machine = &machine;
  }

  Result<Wired> run() {
    GC3_CHECK(check_places(places_, program_.name, program_.ranks.size(), machine_));
    for (const Fabric& f : machine_.data().fabrics) {
      network_.resize(machine_.data().classes.size());
      if (f.across_nodes) network_[f.link_class] = true;
    }
    for (const ir::direct::Channel& c : program_.channels) {
      GC3_ASSIGN(const Machine::Route route, near(c.from, c.to, c.from, " signals rank "));
      out_.hops.push_back(picoseconds(machine_.data().classes[route.link_class].latency_s));
    }
    Breath breathe;
    out_.ways.resize(program_.operands.size());
    for (std::uint32_t r = 0; r < program_.ranks.size(); ++r) {
      out_.rank_of.insert(out_.rank_of.end(), program_.ranks[r].tb_count, r);
    }
    Status possible;
    program_.each_step([&](std::uint32_t r, std::uint32_t, std::uint32_t, std::uint32_t at) {
      breathe();
      const ir::direct::Step& s = program_.steps[at];
      if (s.op != ir::direct::Op::move) return;
      for (std::uint32_t k = s.first; k != s.first + s.sources + s.targets && possible.ok(); ++k) {
        Result<Way> found = way(r, program_.operands[k], k < s.first + s.sources);
        if (found.ok()) out_.ways[k] = found.value();
        if (!found.ok()) possible = std::move(found.error());
      }
    });
    GC3_CHECK(possible);
    return std::move(out_);
  }

 private:
  using Operand = ir::direct::Operand;
  using Key = std::array<std::uint32_t, 3>;

  std::uint32_t place(std::uint32_t rank) const { return places_.empty() ? rank : places_[rank]; }

  // The way of data and signals; `does`: what one of the ranks does to the other.
  Result<Machine::Route> near(std::uint32_t from, std::uint32_t to, std::uint32_t actor,
                              const std::string& does) const {
    const auto route = machine_.route(place(from), place(to), 0);
    if (route && (network_.empty() || !network_[route->link_class])) return *route;
    return Diagnostic(
        ErrorCode::NoPath,
        "rank " + std::to_string(actor) + does + std::to_string(actor == from ? to : from) +
            (route ? ", and a one-sided program reaches only ranks of its own node or memory domain" : ""));
  }

  Result<Way> way(std::uint32_t rank, const Operand& o, bool loads) {
    const bool group = is_multicast(o.access);
    if (!group && o.owner == rank) return own(rank, o);
    const auto found = known_.find(Key{rank, o.owner, std::uint32_t{group} * 2 + std::uint32_t{loads}});
    if (found != known_.end()) return packed(found->second, o);
    GC3_ASSIGN(Way made, group ? through_switch(rank, o.owner, loads) : direct(rank, o.owner, loads));
    known_.emplace(Key{rank, o.owner, std::uint32_t{group} * 2 + std::uint32_t{loads}}, made);
    return packed(made, o);
  }

  static Way packed(Way way, const Operand& o) {
    if (is_packet(o.access)) way.carried *= 2;  // half of a packet is flags
    return way;
  }

  Way own(std::uint32_t rank, const Operand& o) {
    Way way;
    way.taken = list({}, {}, {rank});
    return packed(way, o);
  }

  Result<Way> direct(std::uint32_t rank, std::uint32_t owner, bool loads) {
    // Requests of loads are short, and go between the packets of others.
    GC3_ASSIGN(const Machine::Route route,
               loads ? near(owner, rank, rank, " loads from rank ") : near(rank, owner, rank, " stores to rank "));
    Way way;
    way.remote = true;
    way.hop = picoseconds(machine_.data().classes[route.link_class].latency_s);
    way.taken = list(route.out, route.into, {owner});
    return way;
  }

  // A load takes the way out of every rank of the group and the way into the one that loads; a store the other ways.
  Result<Way> through_switch(std::uint32_t rank, std::uint32_t number, bool loads) {
    const std::vector<std::uint32_t>& ranks = program_.groups[number].ranks;
    Way way;
    way.remote = true;
    std::vector<std::uint32_t> resources;
    const auto add = [&](std::span<const std::uint32_t> part) {
      resources.insert(resources.end(), part.begin(), part.end());
    };
    for (std::size_t k = 0; k < ranks.size(); ++k) {
      const std::uint32_t member = ranks[k], other = ranks[(k + 1) % ranks.size()];
      if (member == other) return bad_simulation("group " + std::to_string(number) + " has only one rank");
      GC3_ASSIGN(const Machine::Route to, near(member, other, member, kTogether));
      GC3_ASSIGN(const Machine::Route from, near(other, member, other, kTogether));
      const LinkClass& kind = machine_.data().classes[to.link_class];
      if (kind.in_switch == 0 || to.into.empty()) {
        return bad_simulation("no switch joins ranks " + std::to_string(member) + " and " + std::to_string(other) +
                              " that multicasts and adds up, which group " + std::to_string(number) + " needs");
      }
      way.hop = std::max(way.hop, picoseconds(kind.latency_s));
      way.carried = std::max(way.carried, 1 / kind.in_switch);
      if (loads || member == rank) add(to.out);
      if (!loads || member == rank) add(from.into);
    }
    way.taken = list(resources, {}, ranks);
    return way;
  }

  // With the memories of the owners, if the machine has them.
  Slice list(std::span<const std::uint32_t> out, std::span<const std::uint32_t> into,
             const std::vector<std::uint32_t>& owners) {
    const auto first = static_cast<std::uint32_t>(out_.resources.size());
    out_.resources.insert(out_.resources.end(), out.begin(), out.end());
    out_.resources.insert(out_.resources.end(), into.begin(), into.end());
    const std::vector<std::uint32_t>& memory = machine_.data().memory;
    for (const std::uint32_t owner : owners) {
      if (!memory.empty()) out_.resources.push_back(memory[place(owner)]);
    }
    return {first, static_cast<std::uint32_t>(out_.resources.size()) - first};
  }

  Wired out_;
  const ir::direct::Program& program_;
  const Machine& machine_;
  const std::vector<std::uint32_t>& places_;
  std::vector<bool> network_;  // by link class
  std::map<Key, Way> known_;
};

}  // namespace

Result<Simulator> Simulator::create(const ir::direct::Program& program, const Machine& machine,
                                    const std::vector<std::uint32_t>& places) {
  GC3_ASSIGN(Wired wired, Wiring(program, machine, places).run());
  return Simulator(std::move(wired));
}

std::string step_name(const Wired& wired, std::uint32_t tb, std::uint32_t step) {
  const ir::direct::Program& program = *wired.program;
  const std::uint32_t rank = wired.rank_of[tb];
  const ir::direct::Step& s = program.steps[program.threadblocks[tb].first_step + step];
  return "rank " + std::to_string(rank) + " threadblock " + std::to_string(tb - program.ranks[rank].first_tb) +
         " step " + std::to_string(step) + " (" + ir::direct::to_text(program, rank, s) + ")";
}

}  // namespace gc3::sim::direct
