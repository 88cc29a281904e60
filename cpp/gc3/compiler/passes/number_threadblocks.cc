#include "gc3/compiler/passes/number_threadblocks.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace gc3::compiler {
namespace {

enum class End : std::uint8_t { send, recv };

class Numberer {
 public:
  explicit Numberer(Trace& trace) : trace_(trace), next_(trace.ranks(), 0) {
    for (const ChunkOp& op : trace_.ops) {
      next_[op.src.rank] = std::max(next_[op.src.rank], op.send_tb + 1);
      next_[op.dst.rank] = std::max(next_[op.dst.rank], op.recv_tb + 1);
      if (op.remote() && op.send_tb != kAuto && op.recv_tb != kAuto) learn(op);
    }
  }

  void run() {
    for (ChunkOp& op : trace_.ops) {
      if (op.remote() && (op.send_tb == kAuto) != (op.recv_tb == kAuto)) complete(op);
    }
    for (ChunkOp& op : trace_.ops) {
      if (op.remote() && op.send_tb == kAuto) choose(op);
    }
  }

 private:
  // The threadblocks at the two ends of a connection.
  struct Pair {
    std::int32_t channel;
    std::int32_t send_tb;
    std::int32_t recv_tb;
  };

  void learn(const ChunkOp& op) {
    receiver_.try_emplace({op.src.rank, op.send_tb}, op.recv_tb);
    sender_.try_emplace({op.dst.rank, op.recv_tb}, op.send_tb);
    std::vector<Pair>& pairs = pairs_[{op.src.rank, op.to()}];
    const auto same = [&](const Pair& p) { return p.send_tb == op.send_tb && p.recv_tb == op.recv_tb; };
    const auto known = std::find_if(pairs.begin(), pairs.end(), same);
    if (known == pairs.end()) {
      pairs.push_back({op.channel, op.send_tb, op.recv_tb});
    } else if (known->channel == kAuto) {
      known->channel = op.channel;
    }
  }

  // One end is given: the other is its partner.
  void complete(ChunkOp& op) {
    const bool sends = op.send_tb != kAuto;
    auto& partners = sends ? receiver_ : sender_;
    const std::pair given(sends ? op.src.rank : op.dst.rank, sends ? op.send_tb : op.recv_tb);
    const auto known = partners.find(given);
    std::int32_t& open = sends ? op.recv_tb : op.send_tb;
    open = known != partners.end() ? known->second : next_[sends ? op.dst.rank : op.src.rank]++;
    learn(op);
  }

  void choose(ChunkOp& op) {
    const std::vector<Pair>& pairs = pairs_[{op.src.rank, op.to()}];
    const auto fits = [&](const Pair& p) { return op.channel == kAuto || p.channel == op.channel; };
    const auto found = std::find_if(pairs.begin(), pairs.end(), fits);
    if (found != pairs.end()) {
      op.send_tb = found->send_tb;
      op.recv_tb = found->recv_tb;
      return;
    }
    op.send_tb = next_[op.src.rank]++;
    op.recv_tb = next_[op.dst.rank]++;
    learn(op);
  }

  Trace& trace_;
  std::vector<std::int32_t> next_;  // per rank: the lowest number above all that are used
  std::map<std::pair<std::uint32_t, std::int32_t>, std::int32_t> receiver_;     // (rank, sendtb) -> recvtb
  std::map<std::pair<std::uint32_t, std::int32_t>, std::int32_t> sender_;       // (rank, recvtb) -> sendtb
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Pair>> pairs_;  // (sender, receiver)
};

}  // namespace

bool is_manual(const Trace& trace) {
  return std::any_of(trace.ops.begin(), trace.ops.end(),
                     [](const ChunkOp& op) { return op.send_tb != kAuto || op.recv_tb != kAuto; });
}

Trace number_threadblocks(Trace trace) {
  if (is_manual(trace)) Numberer(trace).run();
  return trace;
}

}  // namespace gc3::compiler
