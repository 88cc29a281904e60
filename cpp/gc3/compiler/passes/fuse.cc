#include "gc3/compiler/passes/fuse.h"

#include <utility>

#include "gc3/base/interrupt.h"

namespace gc3::compiler {
namespace {

bool may_fuse(const ChunkOp& recv, const ChunkOp& send) {
  const bool same_data = send.src == recv.dst && send.count == recv.count;
  const bool same_lane = send.factor == recv.factor && send.lane == recv.lane;
  const bool same_channel = send.channel == recv.channel || send.channel == kAuto || recv.channel == kAuto;
  return recv.remote() && send.remote() && same_data && same_lane && same_channel && send.send_tb == recv.recv_tb;
}

}  // namespace

std::vector<Fusion> find_fusions(const Trace& trace, const ChunkDag& chunks, const InstructionDag& dag) {
  const std::vector<std::uint32_t> reverse = depths(dag).reverse;
  std::vector<std::uint32_t> best(trace.ops.size(), kNone);  // per receive: the send to fuse
  Breath breathe;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    breathe();
    std::uint32_t writer = kNone;  // the only operation that wrote the data that i reads
    bool unique = true;
    for (const ChunkEdge& e : chunks.edges_of(i)) {
      if (e.end != End::source) continue;
      unique = unique && writer == kNone;
      writer = e.pred;
    }
    if (writer == kNone || !unique || !may_fuse(trace.ops[writer], trace.ops[i])) continue;
    std::uint32_t& chosen = best[writer];
    if (chosen == kNone || reverse[send_node(i)] > reverse[send_node(chosen)]) chosen = i;
  }
  std::vector<Fusion> fusions;
  for (std::uint32_t op = 0; op < best.size(); ++op) {
    if (best[op] != kNone) fusions.push_back({op, best[op]});
  }
  return fusions;
}

InstructionDag fuse(const Trace& trace, const ChunkDag& chunks, InstructionDag dag, std::span<const Fusion> fusions) {
  for (const Fusion& f : fusions) {
    InstructionDag::Node& node = dag.nodes[recv_node(f.recv_op)];
    node.sends = f.send_op;
    if (trace.ops[f.recv_op].kind == OpKind::copy) {
      node.opcode = ir::Opcode::recv_copy_send;
    } else {
      // The sum needs no location in memory if only the send read it and it is not part of the result.
      const bool only_sent = chunks.readers[f.recv_op] == 1 && chunks.live_chunks[f.recv_op] == 0;
      node.opcode = only_sent ? ir::Opcode::recv_reduce_send : ir::Opcode::recv_reduce_copy_send;
    }
    dag.nodes[send_node(f.send_op)] = {};
  }
  // Instructions that waited for a fused send (to reuse its location) now wait for the receive that contains it.
  std::vector<std::uint32_t> moved(dag.nodes.size(), kNone);
  for (const Fusion& f : fusions) moved[send_node(f.send_op)] = recv_node(f.recv_op);
  InstructionDag out;
  out.pred_begin.reserve(dag.pred_begin.size());
  out.preds.reserve(dag.preds.size());
  Breath breathe;
  for (std::uint32_t n = 0; n < dag.nodes.size(); ++n) {
    breathe();
    out.pred_begin.push_back(static_cast<std::uint32_t>(out.preds.size()));
    if (!dag.exists(n)) continue;
    for (std::uint32_t p : dag.preds_of(n)) out.preds.push_back(moved[p] == kNone ? p : moved[p]);
  }
  out.pred_begin.push_back(static_cast<std::uint32_t>(out.preds.size()));
  out.nodes = std::move(dag.nodes);
  return out;
}

}  // namespace gc3::compiler
