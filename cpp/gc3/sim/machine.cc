#include "gc3/sim/machine.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "gc3/base/errors/simulator.h"

namespace gc3::sim {
namespace {

constexpr std::uint64_t pair_key(std::uint32_t src, std::uint32_t dst) { return std::uint64_t{src} << 32U | dst; }

bool is_rate(double x) { return std::isfinite(x) && x > 0; }

Status check_resources(const MachineData& data, std::span<const std::uint32_t> list) {
  for (const std::uint32_t r : list) {
    if (r >= data.resources.size()) return bad_simulation("resource " + std::to_string(r) + " does not exist");
  }
  return {};
}

Status check_numbers(const MachineData& data) {
  for (std::size_t i = 0; i < data.resources.size(); ++i) {
    const Resource& r = data.resources[i];
    if (!is_rate(r.bytes_per_s) || !is_time(r.message_s)) {
      return bad_simulation("resource " + std::to_string(i) + ": a rate above 0 and a time from 0 on are needed");
    }
  }
  for (const LinkClass& c : data.classes) {
    const bool rate = c.connection_bytes_per_s == 0 || is_rate(c.connection_bytes_per_s);
    if (!is_time(c.latency_s) || !is_time(c.connection_message_s) || !rate) {
      return bad_simulation("a link class needs a latency, a rate and a time per message of 0 or more");
    }
    if (!(c.in_switch >= 0 && c.in_switch <= 1))
      return bad_simulation("a switch multicasts at a part of its rate, from 0 to 1");
    if (!(c.requests >= 0 && c.requests <= 1))
      return bad_simulation("requests take a part of the way back, from 0 to 1");
    if (c.engines && (data.engines.size() != data.node_of.size() ||
                      std::ranges::any_of(data.engines, [](const auto& of) { return of.empty(); }))) {
      return bad_simulation("every rank needs a copy engine for a link class whose messages they move");
    }
  }
  if (!is_time(data.submit_s)) return bad_simulation("a copy is submitted in a time of 0 or more");
  if (!is_time(data.core_switch_s)) return bad_simulation("a processor turns to another rank in a time of 0 or more");
  return {};
}

}  // namespace

Result<Machine> Machine::create(MachineData data) {
  GC3_CHECK(check_numbers(data));
  Machine m;
  const auto ranks = static_cast<std::uint32_t>(data.node_of.size());
  for (std::uint32_t i = 0; i < data.links.size(); ++i) {
    const Link& link = data.links[i];
    if (link.src >= ranks || link.dst >= ranks || link.link_class >= data.classes.size()) {
      return bad_simulation("link " + std::to_string(i) + " names a rank or class that does not exist");
    }
    GC3_CHECK(check_resources(data, link.resources));
    m.links_.emplace(pair_key(link.src, link.dst), i);
  }
  GC3_CHECK(check_resources(data, data.memory));
  for (const std::vector<std::uint32_t>& of : data.engines) GC3_CHECK(check_resources(data, of));
  if (!data.memory.empty() && data.memory.size() != ranks)
    return bad_simulation("expected the memory of each rank, or of none");
  m.access_.resize(ranks);
  for (std::uint32_t f = 0; f < data.fabrics.size(); ++f) {
    if (data.fabrics[f].link_class >= data.classes.size())
      return bad_simulation("a fabric names a class that does not exist");
    for (std::uint32_t p = 0; p < data.fabrics[f].ports.size(); ++p) {
      const Port& port = data.fabrics[f].ports[p];
      if (port.rank >= ranks)
        return bad_simulation("a port names rank " + std::to_string(port.rank) + ", which does not exist");
      GC3_CHECK(check_resources(data, port.out));
      GC3_CHECK(check_resources(data, port.into));
      std::vector<Access>& access = m.access_[port.rank];
      if (access.empty() || access.back().fabric != f) access.push_back({f, {}});
      access.back().ports.push_back(p);
    }
  }
  m.data_ = std::move(data);
  return m;
}

const Link* Machine::link(std::uint32_t src, std::uint32_t dst) const {
  if (links_.empty()) return nullptr;
  const auto found = links_.find(pair_key(src, dst));
  return found == links_.end() ? nullptr : &data_.links[found->second];
}

std::optional<Machine::Route> Machine::route(std::uint32_t src, std::uint32_t dst, std::uint32_t channel) const {
  if (src >= ranks() || dst >= ranks() || src == dst) return std::nullopt;
  if (const Link* direct = link(src, dst)) return Route{direct->link_class, direct->resources, {}};
  const bool near = data_.node_of[src] == data_.node_of[dst];
  const std::vector<Access>& from = access_[src];
  const std::vector<Access>& to = access_[dst];
  for (std::size_t i = 0, j = 0; i < from.size() && j < to.size();) {
    if (from[i].fabric != to[j].fabric) {
      (from[i].fabric < to[j].fabric ? i : j) += 1;
      continue;
    }
    const Fabric& fabric = data_.fabrics[from[i].fabric];
    if (!(near && fabric.across_nodes)) {
      const Port& out = fabric.ports[from[i].ports[channel % from[i].ports.size()]];
      const Port& into = fabric.ports[to[j].ports[channel % to[j].ports.size()]];
      return Route{fabric.link_class, out.out, into.into};
    }
    ++i;
    ++j;
  }
  return std::nullopt;
}

}  // namespace gc3::sim
