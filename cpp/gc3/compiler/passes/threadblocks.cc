#include "gc3/compiler/passes/threadblocks.h"

#include <algorithm>
#include <tuple>

#include "gc3/base/errors/compiler.h"
#include "gc3/base/interrupt.h"

namespace gc3::compiler {
namespace {

// Joins blocks that only send with blocks that only receive on the same channel, until at most `limit` are left.
void join_blocks(std::vector<Block>& blocks, std::uint32_t limit) {
  std::vector<Block> kept;
  std::vector<Block> receivers;
  std::vector<Block> senders;
  for (const Block& b : blocks) {
    if (b.send_connection == kNone && b.recv_connection != kNone) {
      receivers.push_back(b);
    } else if (b.send_connection != kNone && b.recv_connection == kNone) {
      senders.push_back(b);
    } else {
      kept.push_back(b);
    }
  }
  std::size_t excess = blocks.size() - limit;
  for (Block& s : senders) {
    const auto partner =
        std::find_if(receivers.begin(), receivers.end(), [&](const Block& r) { return r.channel == s.channel; });
    if (excess > 0 && partner != receivers.end()) {
      s.recv_connection = partner->recv_connection;
      receivers.erase(partner);
      --excess;
    }
    kept.push_back(s);
  }
  kept.insert(kept.end(), receivers.begin(), receivers.end());
  blocks = std::move(kept);
}

}  // namespace

Status check_limit(const Threadblocks& threadblocks, std::uint32_t limit) {
  std::uint32_t heaviest = 0;
  for (std::uint32_t r = 0; r + 1 < threadblocks.first_of_rank.size(); ++r) {
    if (threadblocks.count(r) > threadblocks.count(heaviest)) heaviest = r;
  }
  if (limit == 0 || threadblocks.count(heaviest) <= limit) return {};
  return Diagnostic(ErrorCode::TooManyThreadblocks, "rank " + std::to_string(heaviest) + " needs " +
                                                        std::to_string(threadblocks.count(heaviest)) +
                                                        ", the target allows " + std::to_string(limit));
}

Result<Threadblocks> assign_threadblocks(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                                         std::uint32_t limit) {
  const std::uint32_t ranks = trace.ranks();
  std::vector<std::vector<Block>> by_rank(ranks);
  for (std::uint32_t c = 0; c < channels.connections.size(); ++c) {
    const Connection& connection = channels.connections[c];
    by_rank[connection.sender].push_back({connection.sender, c, connection.fed_by, connection.channel});
    if (connection.feeds == kNone) {
      const std::uint32_t receiver = trace.symmetry.exists() ? 0 : connection.receiver;
      by_rank[receiver].push_back({receiver, kNone, c, connection.channel});
    }
  }
  std::vector<bool> operations(ranks, false);
  for (const ChunkOp& op : trace.ops) {  // a rank that only copies needs a block too
    if (op.kind == OpKind::apply && !by_rank[op.dst.rank].empty()) operations[op.dst.rank] = true;
    if (!op.remote() && by_rank[op.dst.rank].empty()) by_rank[op.dst.rank].push_back({op.dst.rank});
  }
  Threadblocks out;
  std::vector<std::uint32_t> sender_block(channels.connections.size(), kNone);
  std::vector<std::uint32_t> receiver_block(channels.connections.size(), kNone);
  const auto peer_to = [&](std::uint32_t c) { return c == kNone ? kNone : channels.connections[c].receiver; };
  const auto peer_from = [&](std::uint32_t c) { return c == kNone ? kNone : channels.connections[c].sender; };
  for (std::uint32_t r = 0; r < ranks; ++r) {
    auto& blocks = by_rank[r];
    const auto key = [&](const Block& b) {
      return std::tuple(b.channel, peer_to(b.send_connection), peer_from(b.recv_connection));
    };
    const auto less = [&](const Block& a, const Block& b) { return key(a) < key(b); };
    std::sort(blocks.begin(), blocks.end(), less);
    if (limit != 0 && blocks.size() > limit) {
      join_blocks(blocks, limit);
      std::sort(blocks.begin(), blocks.end(), less);
    }
    // Operations have a block of their own, the last, so that messages move between any two of them.
    if (operations[r] && (limit == 0 || blocks.size() < limit)) blocks.push_back({r});
    out.first_of_rank.push_back(static_cast<std::uint32_t>(out.blocks.size()));
    for (const Block& b : blocks) {
      const auto id = static_cast<std::uint32_t>(out.blocks.size());
      if (b.send_connection != kNone) sender_block[b.send_connection] = id;
      if (b.recv_connection != kNone) receiver_block[b.recv_connection] = id;
      out.blocks.push_back(b);
    }
  }
  out.first_of_rank.push_back(static_cast<std::uint32_t>(out.blocks.size()));
  GC3_CHECK(check_limit(out, limit));
  out.block_of.assign(dag.nodes.size(), kNone);
  Breath breathe;
  for (std::uint32_t n = 0; n < dag.nodes.size(); ++n) {
    breathe();
    if (!dag.exists(n)) continue;
    if (dag.receives(n)) {
      out.block_of[n] = receiver_block[channels.connection_of[op_of(n)]];
    } else if (dag.sends(n)) {
      out.block_of[n] = sender_block[channels.connection_of[dag.nodes[n].sends]];
    }
  }
  return out;
}

std::string to_text(const Trace& trace, const Channels& channels, const Threadblocks& threadblocks) {
  std::string out = "threadblocks of " + trace.name + "\n";
  for (std::uint32_t rank = 0; rank < trace.ranks(); ++rank) {
    for (std::uint32_t t = 0; t < threadblocks.count(rank); ++t) {
      const Block& block = threadblocks.blocks[threadblocks.first_of_rank[rank] + t];
      out += "rank " + std::to_string(rank) + " tb " + std::to_string(t) + " channel " + std::to_string(block.channel);
      if (block.send_connection != kNone) {
        out += " send " + std::to_string(channels.connections[block.send_connection].receiver);
      }
      if (block.recv_connection != kNone) {
        out += " recv " + std::to_string(channels.connections[block.recv_connection].sender);
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace gc3::compiler
