#include "gc3/compiler/passes/channels.h"

#include <algorithm>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/interrupt.h"
#include "gc3/compiler/flat_map.h"
#include "gc3/compiler/passes/lanes.h"
#include "gc3/compiler/passes/split.h"

namespace gc3::compiler {
namespace {

constexpr std::uint32_t kMaxRanks = 1U << 20U;

class Assigner {
 public:
  Assigner(const Trace& trace, std::span<const Fusion> fusions)
      : trace_(trace), next_(trace.ops.size(), kNone), fed_(trace.ops.size(), false) {
    out_.connection_of.assign(trace.ops.size(), kNone);
    for (const Fusion& f : fusions) {
      next_[f.recv_op] = f.send_op;
      fed_[f.send_op] = true;
    }
  }

  Result<Channels> run() {
    if (trace_.collective.ranks() >= kMaxRanks)
      return Diagnostic(ErrorCode::ProgramTooLarge, "more than a million ranks");
    Breath breathe;
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      breathe();
      if (trace_.ops[i].remote() && !fed_[i]) GC3_CHECK(assign_chain(i));
    }
    number_channels();
    for (std::uint32_t i = 0; i < next_.size(); ++i) {
      breathe();
      if (next_[i] != kNone) out_.fusions.push_back({i, next_[i]});
    }
    return std::move(out_);
  }

 private:
  // Assigns a channel to the chain that starts at `head`. If no channel suits the whole chain, the chain is cut, and
  // the rest becomes a separate chain.
  Status assign_chain(std::uint32_t head) {
    while (head != kNone) {
      const std::int32_t wanted = directive_and_cut(head);
      const std::uint32_t lane = trace_.ops[head].lane;
      std::uint32_t fits = kNone;  // last operation of the chain that the channel suits
      std::uint32_t base = wanted == kAuto ? 0 : static_cast<std::uint32_t>(wanted);
      Breath breathe;
      while (true) {
        breathe();
        const bool fresh = wanted != kAuto || base >= bases_used(lane);
        fits = try_channel(head, base, lane, fresh);
        if (fits != kNone) break;
        if (++base >= kMaxChannels) {
          return Diagnostic(ErrorCode::ProgramTooLarge, "more than " + std::to_string(kMaxChannels) + " channels")
              .at(trace_.location(trace_.ops[head].where));
        }
      }
      bases_used(lane) = std::max(bases_used(lane), base + 1);
      head = std::exchange(next_[fits], kNone);
    }
    return {};
  }

  // The channel that the user gave to an operation of the chain. Cuts the chain before a second, different one.
  std::int32_t directive_and_cut(std::uint32_t head) {
    std::int32_t wanted = trace_.ops[head].channel;
    for (std::uint32_t op = head; next_[op] != kNone; op = next_[op]) {
      const std::int32_t here = trace_.ops[next_[op]].channel;
      if (here == kAuto || here == wanted) continue;
      if (wanted == kAuto) {
        wanted = here;
        continue;
      }
      // The rest becomes a chain that `run` reaches later, because an operation follows its predecessors.
      fed_[next_[op]] = false;
      next_[op] = kNone;
      break;
    }
    return wanted;
  }

  // Assigns this channel to the chain and returns its last operation. Returns kNone, without a change, if a threadblock
  // would have to forward from or to a second peer. With `may_cut` it keeps the part that fits instead.
  std::uint32_t try_channel(std::uint32_t head, std::uint32_t base, std::uint32_t lane, bool may_cut) {
    undo_.clear();
    std::uint32_t op = head;
    std::uint32_t here = intern(op, base, lane);
    out_.connection_of[op] = here;
    while (next_[op] != kNone) {
      const std::uint32_t after = intern(next_[op], base, lane);
      Connection& in = out_.connections[here];
      Connection& out = out_.connections[after];
      const bool free_or_same = (in.feeds == kNone || in.feeds == after) && (out.fed_by == kNone || out.fed_by == here);
      if (!free_or_same) {
        if (may_cut) return op;
        for (const auto& [a, b] : undo_) {
          out_.connections[a].feeds = kNone;
          out_.connections[b].fed_by = kNone;
        }
        return kNone;
      }
      if (in.feeds == kNone) undo_.emplace_back(here, after);
      in.feeds = after;
      out.fed_by = here;
      op = next_[op];
      here = after;
      out_.connection_of[op] = here;
    }
    return op;
  }

  std::uint32_t& bases_used(std::uint32_t lane) {
    if (bases_.size() <= lane) bases_.resize(lane + 1, 0);
    return bases_[lane];
  }

  // During assignment, a connection's channel is the index of a (base channel, lane) pair.
  std::uint32_t intern(std::uint32_t op, std::uint32_t base, std::uint32_t lane) {
    const std::uint64_t pair_key = (static_cast<std::uint64_t>(lane) << 32U) | base;
    const std::uint32_t pair = pairs_.at(pair_key, static_cast<std::uint32_t>(pair_list_.size()));
    if (pair == pair_list_.size()) pair_list_.emplace_back(lane, base);
    const ChunkOp& o = trace_.ops[op];
    const std::uint32_t to = o.to();
    const std::uint64_t key =
        (static_cast<std::uint64_t>(o.src.rank) << 44U) | (static_cast<std::uint64_t>(to) << 24U) | pair;
    const std::uint32_t id = ids_.at(key, static_cast<std::uint32_t>(out_.connections.size()));
    if (id == out_.connections.size()) out_.connections.push_back({o.src.rank, to, pair});
    return id;
  }

  // Replaces pairs by channel numbers, and drops connections that only failed attempts used.
  void number_channels() {
    std::vector<std::uint32_t> kept(out_.connections.size(), kNone);
    std::vector<bool> used(pair_list_.size(), false);
    for (const std::uint32_t c : out_.connection_of) {
      if (c == kNone) continue;
      kept[c] = 0;
      used[out_.connections[c].channel] = true;
    }
    const std::vector<std::uint32_t> number = number_lanes(pair_list_, used);
    std::vector<Connection> connections;
    for (std::uint32_t c = 0; c < kept.size(); ++c) {
      if (kept[c] == kNone) continue;
      kept[c] = static_cast<std::uint32_t>(connections.size());
      connections.push_back(out_.connections[c]);
      connections.back().channel = number[connections.back().channel];
    }
    for (Connection& c : connections) {
      if (c.feeds != kNone) c.feeds = kept[c.feeds];
      if (c.fed_by != kNone) c.fed_by = kept[c.fed_by];
    }
    out_.connections = std::move(connections);
    for (std::uint32_t& c : out_.connection_of) {
      if (c != kNone) c = kept[c];
    }
  }

  const Trace& trace_;
  std::vector<std::uint32_t> next_;  // per operation: the operation whose send is fused into its receive
  std::vector<bool> fed_;            // per operation: its send is fused
  Channels out_;
  FlatMap ids_;
  FlatMap pairs_;
  std::vector<LanePair> pair_list_;
  std::vector<std::uint32_t> bases_;  // per lane: base channels in use
  std::vector<std::pair<std::uint32_t, std::uint32_t>> undo_;
};

}  // namespace

Result<Channels> assign_channels(const Trace& trace, std::span<const Fusion> fusions) {
  return Assigner(trace, fusions).run();
}

std::string to_text(const Trace& trace, const Channels& channels) {
  std::string out = "channels of " + trace.name + "\n";
  for (std::size_t c = 0; c < channels.connections.size(); ++c) {
    const Connection& connection = channels.connections[c];
    out += "connection " + std::to_string(c) + ": rank " + std::to_string(connection.sender) + " to rank " +
           std::to_string(connection.receiver) + " channel " + std::to_string(connection.channel) + "\n";
  }
  for (std::size_t op = 0; op < trace.ops.size(); ++op) {
    if (channels.connection_of[op] == kNone) continue;
    out += "operation " + std::to_string(op) + ": connection " + std::to_string(channels.connection_of[op]) + "\n";
  }
  return out;
}

}  // namespace gc3::compiler
