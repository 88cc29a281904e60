#include "gc3/compiler/instruction_dag.h"

#include <algorithm>
#include <utility>

#include "gc3/base/interrupt.h"

namespace gc3::compiler {
namespace {

using ir::Opcode;

// The node for an end of an operation.
std::uint32_t node_of(const Trace& trace, std::uint32_t op, End end) {
  return end == End::source && trace.ops[op].remote() ? send_node(op) : recv_node(op);
}

}  // namespace

InstructionDag lower(const Trace& trace, const ChunkDag& dag) {
  const std::size_t n = trace.ops.size();
  InstructionDag out;
  out.nodes.resize(n * 2);
  out.pred_begin.reserve(n * 2 + 1);
  out.preds.reserve(dag.edges.size());
  Breath breathe;
  for (std::uint32_t i = 0; i < n; ++i) {
    breathe();
    const ChunkOp& op = trace.ops[i];
    const bool copy = op.kind == OpKind::copy;
    if (op.remote()) {
      out.nodes[send_node(i)] = {Opcode::send, i};
      out.nodes[recv_node(i)] = {copy ? Opcode::recv : Opcode::recv_reduce_copy, kNone};
    } else {
      const Opcode local = op.kind == OpKind::apply ? Opcode::apply : copy ? Opcode::copy : Opcode::reduce;
      out.nodes[recv_node(i)] = {local, kNone};
    }
    for (const std::uint32_t node : {send_node(i), recv_node(i)}) {
      out.pred_begin.push_back(static_cast<std::uint32_t>(out.preds.size()));
      for (const ChunkEdge& e : dag.edges_of(i)) {
        if (node_of(trace, i, e.end) == node) out.preds.push_back(node_of(trace, e.pred, e.pred_end));
      }
    }
  }
  out.pred_begin.push_back(static_cast<std::uint32_t>(out.preds.size()));
  return out;
}

Depths depths(const InstructionDag& dag) {
  const auto n = static_cast<std::uint32_t>(dag.nodes.size());
  Depths d{std::vector<std::uint32_t>(n, 0), std::vector<std::uint32_t>(n, 0)};
  for (std::uint32_t i = 0; i < n; ++i) {
    if (!dag.exists(i)) continue;
    for (const std::uint32_t p : dag.preds_of(i)) d.depth[i] = std::max(d.depth[i], d.depth[p] + 1);
    if (dag.sends(i)) {  // the receive has a higher number and is handled later
      const std::uint32_t to = recv_node(dag.nodes[i].sends);
      d.depth[to] = std::max(d.depth[to], d.depth[i] + 1);
    }
  }
  for (std::uint32_t i = n; i-- > 0;) {
    if (!dag.exists(i)) continue;
    if (dag.sends(i)) d.reverse[i] = std::max(d.reverse[i], d.reverse[recv_node(dag.nodes[i].sends)] + 1);
    for (const std::uint32_t p : dag.preds_of(i)) d.reverse[p] = std::max(d.reverse[p], d.reverse[i] + 1);
  }
  return d;
}

std::string to_text(const Trace& trace, const InstructionDag& dag) {
  std::string out = "instruction DAG of " + trace.name + "\n";
  Breath breathe;
  for (std::uint32_t i = 0; i < dag.nodes.size(); ++i) {
    breathe();
    if (!dag.exists(i)) continue;
    const ChunkOp& op = trace.ops[op_of(i)];
    const ir::OpcodeInfo& about = ir::info(dag.nodes[i].opcode);
    out += std::to_string(i) + ": rank " + std::to_string(rank_of(trace, i)) + " " + std::string(about.name);
    const auto place = [&](const Range& range) {
      return " " + trace.buffer_names[range.buffer] + "[" + std::to_string(range.index) +
             (op.count > 1 ? ".." + std::to_string(range.index + op.count - 1) : "") + "]";
    };
    if (!about.receives) out += place(op.src);
    if (about.receives) out += " from " + std::to_string(op.src.rank);
    if (about.receives || about.writes_local) out += (about.receives ? "" : " ->") + place(op.dst);
    if (dag.sends(i)) out += " to " + std::to_string(trace.ops[dag.nodes[i].sends].dst.rank);
    if (op.factor != 1) out += " lane=" + std::to_string(op.lane) + "/" + std::to_string(op.factor);
    const char* separator = "  after ";
    if (about.receives) {
      out += separator + std::string("message of ") + std::to_string(op_of(i));
      separator = ", ";
    }
    for (const std::uint32_t p : dag.preds_of(i)) {
      out += separator + std::to_string(p);
      separator = ", ";
    }
    out += "\n";
  }
  return out;
}

}  // namespace gc3::compiler
