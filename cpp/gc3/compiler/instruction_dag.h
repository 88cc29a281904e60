// The instruction DAG: each chunk operation expanded into the instructions that ranks execute (002 section 4.2).
//
// Operation i has node 2i, its send (absent if the operation is local), and node 2i + 1, its receive or the local
// instruction. Fusing the send of operation b into the receive of a removes node 2b. Node numbers are a topological
// order, before and after fusion: the send of b depends only on the receive of a.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gc3/compiler/chunk_dag.h"
#include "gc3/compiler/trace.h"
#include "gc3/ir/program.h"

namespace gc3::compiler {

struct InstructionDag {
  struct Node {
    ir::Opcode opcode = ir::Opcode::nop;  // nop: the node does not exist
    std::uint32_t sends = kNone;          // the operation whose message this node sends
  };
  std::vector<Node> nodes;
  // Processing edges: preds[pred_begin[n] .. pred_begin[n + 1]) are nodes of the same rank that run before n.
  std::vector<std::uint32_t> pred_begin;
  std::vector<std::uint32_t> preds;

  bool exists(std::uint32_t node) const { return nodes[node].opcode != ir::Opcode::nop; }
  bool receives(std::uint32_t node) const { return ir::info(nodes[node].opcode).receives; }
  bool sends(std::uint32_t node) const { return nodes[node].sends != kNone; }
  std::span<const std::uint32_t> preds_of(std::uint32_t node) const {
    return std::span(preds).subspan(pred_begin[node], pred_begin[node + 1] - pred_begin[node]);
  }
};

inline std::uint32_t op_of(std::uint32_t node) { return node / 2; }
inline std::uint32_t send_node(std::uint32_t op) { return op * 2; }
inline std::uint32_t recv_node(std::uint32_t op) { return op * 2 + 1; }  // or the local instruction

// The rank that executes a node.
inline std::uint32_t rank_of(const Trace& trace, std::uint32_t node) {
  const ChunkOp& op = trace.ops[op_of(node)];
  return node % 2 == 0 ? op.src.rank : op.dst.rank;
}

InstructionDag lower(const Trace& trace, const ChunkDag& dag);

// A fusion: the send of operation `send_op` becomes part of the node that receives operation `recv_op`.
struct Fusion {
  std::uint32_t recv_op;
  std::uint32_t send_op;
};

// Per node: the lengths of the longest paths from a start and to a leaf, over processing and communication edges.
struct Depths {
  std::vector<std::uint32_t> depth;
  std::vector<std::uint32_t> reverse;
};
Depths depths(const InstructionDag& dag);

std::string to_text(const Trace& trace, const InstructionDag& dag);

}  // namespace gc3::compiler
