#include "gc3/sim/wiring.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "gc3/base/errors/model.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/base/interrupt.h"

namespace gc3::sim {
namespace {

// A threadblock's end of a connection.
struct End {
  std::uint32_t src, dst, channel, tb;
  auto operator<=>(const End&) const = default;
  bool same_connection(const End& o) const { return src == o.src && dst == o.dst && channel == o.channel; }
};

std::string name_of(const End& e) {
  return "the connection from rank " + std::to_string(e.src) + " to rank " + std::to_string(e.dst) + " on channel " +
         std::to_string(e.channel);
}

class Builder {
 public:
  Builder(const ir::Program& program, const Machine& machine) : program_(program), machine_(machine) {}

  Result<Wiring> run() {
    if (program_.ranks.size() > machine_.ranks()) {
      return Diagnostic(ErrorCode::TooFewRanks, "'" + program_.name + "' has " + std::to_string(program_.ranks.size()) +
                                                    " ranks, the machine " + std::to_string(machine_.ranks()));
    }
    const std::size_t tbs = program_.threadblocks.size();
    out_.rank_of.resize(tbs);
    out_.sending.assign(tbs, kNone);
    out_.receiving.assign(tbs, kNone);
    out_.instructions = program_.instructions.size();
    for (std::uint32_t r = 0; r < program_.ranks.size(); ++r) {
      const ir::RankProgram& rank = program_.ranks[r];
      for (std::uint32_t t = 0; t < rank.tb_count; ++t) out_.rank_of[rank.first_tb + t] = r;
    }
    std::vector<End> senders;
    std::vector<End> receivers;
    Breath breathe;
    for (std::uint32_t t = 0; t < tbs; ++t) {
      breathe();
      const ir::Threadblock& tb = program_.threadblocks[t];
      bool sends = false;
      bool receives = false;
      for (const ir::Instruction& i : program_.steps(tb)) {
        sends |= ir::info(i.opcode).sends;
        receives |= ir::info(i.opcode).receives;
        if (ir::info(i.opcode).sends) out_.max_count = std::max(out_.max_count, i.count);
        GC3_CHECK(check_dependencies(t, i));
      }
      if (sends) senders.push_back({out_.rank_of[t], tb.send_peer, tb.channel, t});
      if (receives) receivers.push_back({tb.recv_peer, out_.rank_of[t], tb.channel, t});
    }
    std::ranges::sort(senders);
    std::ranges::sort(receivers);
    GC3_CHECK(check_unshared(senders));
    GC3_CHECK(check_unshared(receivers));
    for (std::size_t i = 0; i < std::max(senders.size(), receivers.size()); ++i) {
      if (i == senders.size() || i == receivers.size() || !senders[i].same_connection(receivers[i])) {
        const bool lone_sender = i == receivers.size() || (i < senders.size() && senders[i] < receivers[i]);
        return Diagnostic(ErrorCode::UnmatchedTransfer, name_of(lone_sender ? senders[i] : receivers[i]) +
                                                            (lone_sender ? " has no receiver" : " has no sender"));
      }
      GC3_CHECK(add(senders[i], receivers[i].tb));
    }
    return std::move(out_);
  }

 private:
  static Status check_unshared(const std::vector<End>& ends) {
    for (std::size_t k = 1; k < ends.size(); ++k) {
      if (ends[k].same_connection(ends[k - 1])) return Diagnostic(ErrorCode::SharedConnection, name_of(ends[k]));
    }
    return {};
  }

  // A step with dependents must be marked as such: the simulation relies on it, as the runtime does.
  Status check_dependencies(std::uint32_t t, const ir::Instruction& i) const {
    const ir::RankProgram& rank = program_.ranks[out_.rank_of[t]];
    for (const ir::Dependency& d : program_.deps(i)) {
      if (d.tb < rank.tb_count) {
        const auto steps = program_.steps(program_.threadblocks[rank.first_tb + d.tb]);
        if (d.step < steps.size() && steps[d.step].has_dependents != 0) continue;
      }
      return Diagnostic(ErrorCode::BadStructure,
                        "rank " + std::to_string(out_.rank_of[t]) + " depends on threadblock " + std::to_string(d.tb) +
                            " step " + std::to_string(d.step) + ", which does not exist or is not marked");
    }
    return {};
  }

  Status add(const End& end, std::uint32_t receiver) {
    const auto route = machine_.route(end.src, end.dst, end.channel);
    if (!route) {
      return Diagnostic(ErrorCode::NoPath, "rank " + std::to_string(end.src) + " sends to rank " +
                                               std::to_string(end.dst) + " (threadblock " +
                                               std::to_string(end.tb - program_.ranks[end.src].first_tb) + ")");
    }
    GC3_CHECK(check_messages(end, receiver));
    const auto id = static_cast<std::uint32_t>(out_.wires.size());
    out_.sending[end.tb] = id;
    out_.receiving[receiver] = id;
    out_.wires.push_back({end.tb, receiver, route->link_class, intern(route->out), intern(route->into)});
    return {};
  }

  Status check_messages(const End& end, std::uint32_t receiver) const {
    const auto sent = program_.steps(program_.threadblocks[end.tb]);
    const auto received = program_.steps(program_.threadblocks[receiver]);
    std::size_t s = 0;
    std::size_t r = 0;
    for (std::size_t message = 0;; ++message, ++s, ++r) {
      while (s < sent.size() && !ir::info(sent[s].opcode).sends) ++s;
      while (r < received.size() && !ir::info(received[r].opcode).receives) ++r;
      if (s == sent.size() && r == received.size()) return {};
      if (s < sent.size() && r < received.size() && sent[s].count == received[r].count) continue;
      return Diagnostic(ErrorCode::UnmatchedTransfer, "message " + std::to_string(message) + " on " + name_of(end));
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
  Wiring out_;
  std::unordered_map<const std::uint32_t*, Slice> interned_;
};

}  // namespace

Result<Wiring> wire(const ir::Program& program, const Machine& machine) { return Builder(program, machine).run(); }

std::string step_name(const ir::Program& program, const Wiring& wiring, std::uint32_t tb, std::uint32_t step) {
  const std::uint32_t rank = wiring.rank_of[tb];
  const ir::Threadblock& block = program.threadblocks[tb];
  return "rank " + std::to_string(rank) + " threadblock " + std::to_string(tb - program.ranks[rank].first_tb) +
         " step " + std::to_string(step) + " (" +
         std::string(ir::info(program.instructions[block.first_instruction + step].opcode).xml) + ")";
}

}  // namespace gc3::sim
