// Why it is enough to simulate one rank of each class. Let H be a group of translations of the ranks, and let each of
// them be an automorphism of the machine: it maps a rank's ports, links, memory and engines to those of the translated
// rank, resource by resource, and thereby resources to resources of the same rate. Routes follow from these lists
// alone (Machine::route takes the first fabric that both ranks have, and of each its port by channel), so H maps the
// route of a connection to that of the translated one. It maps the program to itself by construction (ir::expand). So H
// maps the whole system to itself. `Automorphisms` checks all this in the machine's description.
//
// Let H also act freely on the resources that the program uses: only the identity leaves one of them where it is. Then
// a resource is used by at most one copy of each transfer, and the state of the simulation stays symmetric, by
// induction over its events. Of such programs, events are processed by time, then by the round in which they became
// known at this time, by the number of their threadblock in its rank, and by rank (execution.h). Suppose that the state
// is symmetric before the events of one time, round and threadblock: they are the copies of a few events, one of each
// class of ranks. Copies of one event touch different threadblocks, connection ends and resources, so they do not see
// each other, and what they make known at this time belongs to the next round. Two ends of a connection that act at
// once do the same in either order, since each only looks at what the other has done before. Events of different
// classes may use one resource. Their order there is that of their ranks, and must be the same in all copies: it is if
// their ranks differ by less than any translation of H, which is what `Folding::same_order` checks. So the state after
// them is symmetric. With max-min sharing, rates are the unique solution of conditions that H maps to themselves, so
// all copies of a transfer have one rate.
//
// A symmetric state is known from one rank of each class, and its resources from the first of each class. These ranks
// are simulated as a program of their own, in which the copies of a peer are that peer: what a rank sends to the next
// node it receives, at the same time, from the node before. Each resource has the load of every member of its class,
// because of the copies of a transfer exactly one uses it. What runs is the same simulator.
#include "gc3/sim/classes.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "gc3/base/errors/simulator.h"
#include "gc3/base/interrupt.h"

namespace gc3::sim {
namespace {

using List = std::span<const std::uint32_t>;

std::string named(const char* what, std::uint32_t number) { return std::string(what) + " " + std::to_string(number); }

// A translation of ranks, with what it does to the machine. `broken` says where it is no automorphism.
class Automorphism {
 public:
  Automorphism(const model::Symmetry& symmetry, const Machine& machine, const std::vector<std::uint32_t>& places,
               std::uint32_t by)
      : machine_(machine), data_(machine.data()), places_(places) {
    const auto ranks = static_cast<std::uint32_t>(symmetry.ranks());
    to_.assign(machine.ranks(), kNone);
    for (std::uint32_t r = 0; r < ranks; ++r) to_[place(r)] = place(symmetry.plus(r, by));
    resources_.resize(data_.resources.size());
    nodes_.resize(1 + std::ranges::max(data_.node_of));
    fabrics_.resize(data_.fabrics.size());
    Breath breathe;
    for (std::uint32_t r = 0; r < ranks && broken_.empty(); ++r) {
      breathe();
      check(place(r));
    }
    for (const Link& link : data_.links) {
      if (!broken_.empty()) break;
      breathe();
      check(link);
    }
  }

  const std::string& broken() const { return broken_; }
  std::uint32_t resource(std::uint32_t r) const { return resources_.to[r]; }

 private:
  // A map that must be one to one.
  struct Map {
    std::vector<std::uint32_t> to;
    std::vector<std::uint32_t> from;
    void resize(std::size_t n) {
      to.assign(n, kNone);
      from.assign(n, kNone);
    }
    bool add(std::uint32_t a, std::uint32_t b) {
      if (to[a] == kNone && from[b] == kNone) to[a] = b, from[b] = a;
      return to[a] == b && from[b] == a;
    }
  };

  std::uint32_t place(std::uint32_t rank) const { return places_.empty() ? rank : places_[rank]; }

  void check(std::uint32_t rank) {
    const std::uint32_t other = to_[rank];
    const auto differ = [&](const std::string& how) {
      if (broken_.empty()) broken_ = named("rank", rank) + " is not like " + named("rank", other) + ": " + how;
    };
    if (!nodes_.add(data_.node_of[rank], data_.node_of[other])) differ("they do not share nodes with like ranks");
    if (!data_.memory.empty()) map({&data_.memory[rank], 1}, {&data_.memory[other], 1}, differ);
    if (!data_.engines.empty()) map(data_.engines[rank], data_.engines[other], differ);
    const auto& own = machine_.access(rank);
    const auto& theirs = machine_.access(other);
    if (own.size() != theirs.size()) return differ("they have ports to different numbers of fabrics");
    for (std::size_t k = 0; k < own.size(); ++k) {
      const Fabric& fabric = data_.fabrics[own[k].fabric];
      const Fabric& like = data_.fabrics[theirs[k].fabric];
      if (!fabrics_.add(own[k].fabric, theirs[k].fabric) || fabric.link_class != like.link_class ||
          fabric.across_nodes != like.across_nodes || own[k].ports.size() != theirs[k].ports.size()) {
        return differ("they have different fabrics, or ports to them");
      }
      for (std::size_t p = 0; p < own[k].ports.size(); ++p) {
        map(fabric.ports[own[k].ports[p]].out, like.ports[theirs[k].ports[p]].out, differ);
        map(fabric.ports[own[k].ports[p]].into, like.ports[theirs[k].ports[p]].into, differ);
      }
    }
  }

  void check(const Link& link) {
    if (to_[link.src] == kNone || to_[link.dst] == kNone || machine_.link(link.src, link.dst) != &link) return;
    const Link* other = machine_.link(to_[link.src], to_[link.dst]);
    const auto differ = [&](const std::string& how) {
      broken_ = "the link from " + named("rank", link.src) + " to " + named("rank", link.dst) +
                " is not like that from " + named("rank", to_[link.src]) + " to " + named("rank", to_[link.dst]) +
                ": " + how;
    };
    if (other == nullptr) return differ("there is no such link");
    if (link.link_class != other->link_class) return differ("they are of different classes");
    map(link.resources, other->resources, differ);
  }

  template <class Differ>
  void map(List own, List theirs, const Differ& differ) {
    if (own.size() != theirs.size()) return differ("they use different numbers of resources");
    for (std::size_t k = 0; k < own.size(); ++k) {
      const Resource& a = data_.resources[own[k]];
      const Resource& b = data_.resources[theirs[k]];
      const std::string both = named("resource", own[k]) + " and " + named("resource", theirs[k]);
      if (a.bytes_per_s != b.bytes_per_s || a.message_s != b.message_s) return differ(both + " have different rates");
      if (!resources_.add(own[k], theirs[k])) return differ(both + " are shared with unlike ranks");
    }
  }

  const Machine& machine_;
  const MachineData& data_;
  const std::vector<std::uint32_t>& places_;
  std::vector<std::uint32_t> to_;  // of each rank of the machine
  Map resources_;
  Map nodes_;
  Map fabrics_;
  std::string broken_;
};

// Finds H: translations of coordinate k by multiples of strides_[k], which divides its number of values.
class Folding {
 public:
  Folding(const ir::ClassProgram& program, const Machine& machine, const std::vector<std::uint32_t>& places)
      : program_(program),
        symmetry_(program.symmetry),
        machine_(machine),
        places_(places),
        strides_(symmetry_.shape()),
        by_(machine.data().resources.size()) {}

  Result<Classes> run(bool apart) {
    GC3_ASSIGN(const ir::Connections connections, ir::checked_connections(program_));
    GC3_CHECK(check_places(places_, program_.representative.name, program_.ranks(), machine_));
    least_.assign(strides_.size(), 1);
    if (apart || !dealt()) return make(connections);
    while (true) {
      grow();
      GC3_ASSIGN(Classes made, make(connections));
      if (same_order(made)) return made;
    }
  }

 private:
  bool trivial() const { return strides_ == symmetry_.shape(); }

  // Whether the machine deals nothing out by the numbers of ranks.
  bool dealt() {
    const MachineData& data = machine_.data();
    const bool engines = std::ranges::any_of(data.classes, &LinkClass::engines) && data.engines.front().size() > 1;
    if (data.cores != 0) broken_ = "its processors are dealt out to ranks by number";
    if (engines) broken_ = "copy engines are dealt out to peers by number";
    return broken_.empty();
  }

  // Makes H as large as it can be, coordinate by coordinate, with strides of at least least_.
  void grow() {
    strides_ = symmetry_.shape();
    generators_.clear();
    for (std::uint32_t k = 0; k < strides_.size(); ++k) {
      const std::uint32_t values = symmetry_.shape()[k];
      for (std::uint32_t stride = least_[k]; stride < values; ++stride) {
        if (values % stride != 0) continue;
        strides_[k] = stride;
        if (acts_freely(k)) break;
        strides_[k] = values;
      }
    }
    if (!trivial() || strides_.empty()) label();
  }

  std::uint32_t unit(std::uint32_t k) const {
    std::vector<std::uint32_t> at(strides_.size());
    at[k] = strides_[k];
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < at.size(); ++i) out = out * symmetry_.shape()[i] + at[i];
    return out;
  }

  // Adds the translation of coordinate k by its stride, if that is an automorphism.
  bool acts_freely(std::uint32_t k) {
    Automorphism map(symmetry_, machine_, places_, unit(k));
    if (!map.broken().empty()) {
      if (broken_.empty()) broken_ = map.broken();
      return false;
    }
    generators_.emplace_back(unit(k), std::move(map));
    if (label()) return true;
    generators_.pop_back();
    return false;
  }

  // Gives each resource the first of its class, and the translation that leads from there. False: a translation leaves
  // a resource where it is.
  bool label() {
    first_.resize(by_.size());
    std::iota(first_.begin(), first_.end(), 0U);
    std::ranges::fill(by_, kNone);
    std::vector<std::uint32_t> found;
    for (std::uint32_t r = 0; r < by_.size(); ++r) {
      if (by_[r] != kNone) continue;
      by_[r] = 0;
      found.assign(1, r);
      for (std::size_t at = 0; at < found.size(); ++at) {
        for (const auto& [translation, map] : generators_) {
          const std::uint32_t next = map.resource(found[at]);
          if (next == kNone) continue;  // nothing that the ranks of the program have
          const std::uint32_t by = symmetry_.plus(by_[found[at]], translation);
          if (by_[next] == kNone) {
            by_[next] = by;
            first_[next] = r;
            found.push_back(next);
          } else if (by_[next] != by) {
            if (broken_.empty()) broken_ = named("resource", next) + " is shared by ranks that would be of one class";
            return false;
          }
        }
      }
    }
    return true;
  }

  Result<Classes> make(const ir::Connections& connections) {
    Classes out;
    const std::uint32_t ranks = program_.ranks();
    out.of.resize(ranks);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      bool first = true;
      for (std::uint32_t k = 0; k < strides_.size(); ++k) {
        const std::uint32_t at = symmetry_.coordinate(r, k);
        out.of[r] = out.of[r] * strides_[k] + at % strides_[k];
        first = first && at < strides_[k];
      }
      if (first) out.ranks.push_back(r);
    }
    Result<ir::Program> some = ir::expand(program_, out.ranks);
    if (!some.ok()) {
      Diagnostic why = std::move(some.error());
      if (!broken_.empty()) why.note("the machine is not the same for all ranks: " + broken_);
      return why;
    }
    out.program = std::move(some).value();
    const auto own = static_cast<std::uint32_t>(program_.representative.threadblocks.size());
    std::vector<Joined> joined;
    joined_.clear();
    for (std::uint32_t q = 0; q < out.ranks.size(); ++q) {
      for (const ir::Connection& c : connections.all) {
        if (c.messages == 0) continue;
        const std::uint32_t src = out.ranks[q];
        const std::uint32_t dst = symmetry_.plus(src, program_.representative.threadblocks[c.send_tb].send_peer);
        joined.push_back({q * own + c.send_tb, out.of[dst] * own + c.recv_tb, src, dst});
      }
    }
    GC3_ASSIGN(out.wiring, wire(out.program, machine_, places_, joined, out.ranks));
    out.first = first_.empty() ? std::vector<std::uint32_t>() : first_;
    out.broken = out.ranks.size() == 1 ? "" : broken_;
    joined_ = std::move(joined);
    return out;
  }

  // Whether the ranks that use a resource at once do so in the same order in all copies. If so, the wiring is told the
  // first resource of each class; if not, coordinates by which they differ are left out of H.
  bool same_order(Classes& made) {
    if (trivial()) return true;
    const auto own = static_cast<std::uint32_t>(program_.representative.threadblocks.size());
    struct Use {
      std::uint32_t first, tb, by;
      auto operator<=>(const Use&) const = default;
    };
    std::vector<Use> uses;
    Wiring& wiring = made.wiring;
    for (std::size_t w = 0; w < wiring.wires.size(); ++w) {
      const Wire& wire = wiring.wires[w];
      const bool pulled = machine_.data().classes[wire.link_class].requests > 0;
      // Who uses the route is rank `by` from the first of its class.
      const std::uint32_t dst = joined_[w].dst;
      const std::uint32_t tb = pulled ? wire.recv_tb : wire.send_tb;
      const std::uint32_t by = pulled ? symmetry_.minus(dst, made.ranks[made.of[dst]]) : 0;
      for (const Slice way : {wire.out, wire.into, wire.back_out, wire.back_into}) {
        for (std::uint32_t k = way.first; k != way.first + way.count; ++k) {
          const std::uint32_t r = wiring.resources[k];
          uses.push_back({first_[r], tb % own, symmetry_.minus(by, by_[r])});
        }
      }
    }
    std::ranges::sort(uses);
    bool same = true;
    for (std::size_t k = 1; k < uses.size(); ++k) {
      const Use& a = uses[k - 1];
      const Use& b = uses[k];
      if (a.first != b.first || a.tb != b.tb || a.by == b.by) continue;
      same = false;
      broken_ = named("resource", a.first) + " is used at once by ranks whose order differs from copy to copy";
      for (std::uint32_t c = 0; c < strides_.size(); ++c) {
        if (symmetry_.coordinate(a.by, c) != symmetry_.coordinate(b.by, c)) least_[c] = symmetry_.shape()[c];
      }
    }
    if (!same) return false;
    const auto fold = [&](std::uint32_t& r) {
      if (r != kNone) r = first_[r];
    };
    std::ranges::for_each(wiring.resources, fold);
    std::ranges::for_each(wiring.memory, fold);
    for (Wire& wire : wiring.wires) fold(wire.engine);
    return true;
  }

  const ir::ClassProgram& program_;
  const model::Symmetry& symmetry_;
  const Machine& machine_;
  const std::vector<std::uint32_t>& places_;
  std::vector<std::uint32_t> strides_;
  std::vector<std::uint32_t> least_;
  std::vector<std::pair<std::uint32_t, Automorphism>> generators_;
  std::vector<std::uint32_t> first_;  // by resource
  std::vector<std::uint32_t> by_;     // by resource: the translation that leads there from the first of its class
  std::vector<Joined> joined_;
  std::string broken_;
};

}  // namespace

Result<Classes> find_classes(const ir::ClassProgram& program, const Machine& machine,
                             const std::vector<std::uint32_t>& places, bool apart) {
  return Folding(program, machine, places).run(apart);
}

}  // namespace gc3::sim
