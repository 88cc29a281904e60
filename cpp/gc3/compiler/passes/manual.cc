#include "gc3/compiler/passes/manual.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "gc3/base/errors/language.h"
#include "gc3/base/interrupt.h"
#include "gc3/compiler/flat_map.h"
#include "gc3/compiler/passes/lanes.h"

namespace gc3::compiler {
namespace {

class ManualPlacer {
 public:
  ManualPlacer(const Trace& trace, const InstructionDag& dag, std::span<const Fusion> fusions)
      : trace_(trace), dag_(dag) {
    out_.channels.fusions.assign(fusions.begin(), fusions.end());
  }

  Result<ManualSchedule> run() {
    number_blocks();
    Breath breathe;
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      breathe();
      if (trace_.ops[i].remote()) GC3_CHECK(connect(i));
    }
    GC3_CHECK(choose_channels());
    make_connections();
    return std::move(out_);
  }

 private:
  struct Peers {
    std::uint32_t send = kNone;
    std::uint32_t recv = kNone;
    LocationId where;  // the operation that first used the block
  };

  static std::tuple<std::uint32_t, std::int32_t, std::uint32_t> sender(const ChunkOp& op) {
    return {op.src.rank, op.send_tb, op.lane};
  }
  static std::tuple<std::uint32_t, std::int32_t, std::uint32_t> receiver(const ChunkOp& op) {
    return {op.dst.rank, op.recv_tb, op.lane};
  }

  // Blocks of a rank are numbered densely, by the user's number and then by lane.
  void number_blocks() {
    for (const ChunkOp& op : trace_.ops) {
      ids_[sender(op)] = 0;
      ids_[receiver(op)] = 0;
    }
    Threadblocks& t = out_.threadblocks;
    for (auto& [key, id] : ids_) {
      id = static_cast<std::uint32_t>(t.blocks.size());
      while (t.first_of_rank.size() <= std::get<0>(key)) t.first_of_rank.push_back(id);
      t.blocks.push_back({std::get<0>(key)});
      lanes_.push_back(std::get<2>(key));
    }
    while (t.first_of_rank.size() <= trace_.ranks())
      t.first_of_rank.push_back(static_cast<std::uint32_t>(t.blocks.size()));
    peers_.resize(t.blocks.size());
    group_.resize(t.blocks.size());
    std::iota(group_.begin(), group_.end(), 0U);
    wanted_.assign(t.blocks.size(), kAuto);
    t.block_of.assign(dag_.nodes.size(), kNone);
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      const ChunkOp& op = trace_.ops[i];
      if (dag_.exists(send_node(i))) t.block_of[send_node(i)] = ids_[sender(op)];
      t.block_of[recv_node(i)] = ids_[receiver(op)];
    }
  }

  Diagnostic conflict(const ChunkOp& op, std::uint32_t block, const std::string& what) const {
    const auto key = std::find_if(ids_.begin(), ids_.end(), [&](const auto& entry) { return entry.second == block; });
    Diagnostic d(ErrorCode::BadThreadblock, "threadblock " + std::to_string(std::get<1>(key->first)) + " of rank " +
                                                std::to_string(std::get<0>(key->first)) + " would have " + what);
    d.note("the first operation of that threadblock", trace_.location(peers_[block].where));
    return d.at(trace_.location(op.where));
  }

  std::uint32_t root(std::uint32_t block) {
    while (group_[block] != block) block = group_[block] = group_[group_[block]];
    return block;
  }

  // Both ends of a transfer share a channel, and a block has one channel. So connected blocks form a group with one
  // channel.
  Status connect(std::uint32_t i) {
    const ChunkOp& op = trace_.ops[i];
    const std::uint32_t from = ids_[sender(op)];
    const std::uint32_t to = ids_[receiver(op)];
    for (const std::uint32_t b : {from, to}) {
      if (!peers_[b].where.exists()) peers_[b].where = op.where;
    }
    const std::uint32_t sends_to = op.to();
    const std::uint32_t receives_from = trace_.symmetry.exists() ? trace_.symmetry.minus(0, sends_to) : op.src.rank;
    if (peers_[from].send != kNone && peers_[from].send != sends_to) {
      return conflict(
          op, from, "two send peers, ranks " + std::to_string(peers_[from].send) + " and " + std::to_string(sends_to));
    }
    if (peers_[to].recv != kNone && peers_[to].recv != receives_from) {
      return conflict(
          op, to,
          "two receive peers, ranks " + std::to_string(peers_[to].recv) + " and " + std::to_string(receives_from));
    }
    peers_[from].send = sends_to;
    peers_[to].recv = receives_from;
    const std::uint32_t a = root(from);
    const std::uint32_t b = root(to);
    std::int32_t wanted = wanted_[a];
    for (const std::int32_t other : {wanted_[b], op.channel}) {
      if (other == kAuto) continue;
      if (wanted != kAuto && wanted != other) {
        return conflict(op, from, "two channels, " + std::to_string(wanted) + " and " + std::to_string(other));
      }
      wanted = other;
    }
    group_[std::max(a, b)] = std::min(a, b);
    wanted_[std::min(a, b)] = wanted;
    return {};
  }

  // The user's channels first, then the lowest channel that gives every connection one block at each end.
  Status choose_channels() {
    const auto n = static_cast<std::uint32_t>(peers_.size());
    base_.assign(n, 0);
    std::vector<std::vector<std::uint32_t>> members(n);
    for (std::uint32_t b = 0; b < n; ++b) members[root(b)].push_back(b);
    for (const bool given : {true, false}) {
      for (std::uint32_t g = 0; g < n; ++g) {
        if (members[g].empty() || (wanted_[g] != kAuto) != given) continue;
        std::uint32_t base = given ? static_cast<std::uint32_t>(wanted_[g]) : 0;
        std::uint32_t clash = find_clash(members[g], base);
        while (clash != kNone && !given) clash = find_clash(members[g], ++base);
        if (clash != kNone) {
          ChunkOp op;
          op.where = peers_[clash].where;
          return conflict(op, clash,
                          "a connection that another threadblock already uses on channel " + std::to_string(base));
        }
        for (const std::uint32_t b : members[g]) {
          base_[b] = base;
          for (const std::uint64_t key : keys(b, base)) owner_.at(key, b);
        }
      }
    }
    return {};
  }

  std::vector<std::uint64_t> keys(std::uint32_t block, std::uint32_t base) const {
    const auto key = [&](bool send, std::uint32_t peer) {
      return (mix64((static_cast<std::uint64_t>(lanes_[block]) << 32U) | base) << 1U | (send ? 1U : 0U)) ^
             (static_cast<std::uint64_t>(out_.threadblocks.blocks[block].rank) << 41U) ^
             (static_cast<std::uint64_t>(peer) << 20U);
    };
    std::vector<std::uint64_t> out;
    if (peers_[block].send != kNone) out.push_back(key(true, peers_[block].send));
    if (peers_[block].recv != kNone) out.push_back(key(false, peers_[block].recv));
    return out;
  }

  std::uint32_t find_clash(const std::vector<std::uint32_t>& members, std::uint32_t base) {
    FlatMap mine;
    for (const std::uint32_t b : members) {
      for (const std::uint64_t key : keys(b, base)) {
        if (owner_.contains(key) || mine.at(key, b) != b) return b;
      }
    }
    return kNone;
  }

  void make_connections() {
    std::vector<LanePair> pairs;
    for (std::size_t b = 0; b < base_.size(); ++b) pairs.emplace_back(lanes_[b], base_[b]);
    std::vector<LanePair> distinct = pairs;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    const std::vector<std::uint32_t> number = number_lanes(distinct, std::vector<bool>(distinct.size(), true));
    std::vector<Block>& blocks = out_.threadblocks.blocks;
    for (std::size_t b = 0; b < base_.size(); ++b) {
      const auto at = std::lower_bound(distinct.begin(), distinct.end(), pairs[b]);
      blocks[b].channel = number[static_cast<std::size_t>(at - distinct.begin())];
    }
    Channels& c = out_.channels;
    c.connection_of.assign(trace_.ops.size(), kNone);
    Breath breathe;
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      breathe();
      const ChunkOp& op = trace_.ops[i];
      if (!op.remote()) continue;
      Block& from = blocks[ids_[sender(op)]];
      Block& to = blocks[ids_[receiver(op)]];
      if (from.send_connection == kNone) {
        from.send_connection = to.recv_connection = static_cast<std::uint32_t>(c.connections.size());
        c.connections.push_back({op.src.rank, op.to(), from.channel});
      }
      c.connection_of[i] = from.send_connection;
    }
  }

  const Trace& trace_;
  const InstructionDag& dag_;
  ManualSchedule out_;
  std::map<std::tuple<std::uint32_t, std::int32_t, std::uint32_t>, std::uint32_t> ids_;  // (rank, tb, lane) -> block
  std::vector<std::uint32_t> lanes_;
  std::vector<Peers> peers_;
  std::vector<std::uint32_t> group_;
  std::vector<std::int32_t> wanted_;  // per group: the channel that the user gave
  std::vector<std::uint32_t> base_;
  FlatMap owner_;  // (rank, direction, peer, lane, base channel) -> block
};

}  // namespace

Result<ManualSchedule> place_manually(const Trace& trace, const InstructionDag& dag, std::span<const Fusion> fusions) {
  return ManualPlacer(trace, dag, fusions).run();
}

}  // namespace gc3::compiler
