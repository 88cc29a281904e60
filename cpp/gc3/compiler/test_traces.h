// Traces for the compiler's tests, written by hand: the passes get the same input as from the tracer.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gc3/compiler/chunk_dag.h"
#include "gc3/compiler/instruction_dag.h"
#include "gc3/compiler/passes/channels.h"
#include "gc3/compiler/passes/fuse.h"
#include "gc3/compiler/passes/manual.h"
#include "gc3/compiler/passes/order.h"
#include "gc3/compiler/passes/threadblocks.h"
#include "gc3/compiler/schedule.h"
#include "gc3/compiler/trace.h"

namespace gc3::compiler::testing {

inline constexpr std::uint32_t kExtent = 8;  // chunks of a block, and of each scratch buffer

inline Range in(std::uint32_t rank, std::uint32_t index = 0) { return {rank, index, kInput}; }
inline Range out(std::uint32_t rank, std::uint32_t index = 0) { return {rank, index, kOutput}; }
inline Range scratch(std::uint32_t rank, std::uint32_t index = 0) { return {rank, index, kScratch}; }

// Operations of a collective that is never completed: passes do not look at values.
class Traced {
 public:
  explicit Traced(std::uint32_t ranks, model::CollectiveKind kind = model::CollectiveKind::allreduce,
                  bool in_place = false) {
    trace.name = "test";
    trace.collective = model::Collective::builtin(kind, ranks, kExtent, 0, in_place).value();
    trace.buffer_names = {"input", "output", "scratch"};
    trace.extents.resize(3);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      trace.extents[kInput].push_back(trace.collective.input_chunks(r));
      trace.extents[kOutput].push_back(trace.collective.output_chunks(r));
      trace.extents[kScratch].push_back(kExtent);
    }
  }

  // Returns the last operation, so that its other fields can be set.
  ChunkOp& copy(const Range& src, const Range& dst, std::uint32_t count = 1) {
    return add(OpKind::copy, src, dst, count);
  }
  ChunkOp& reduce(const Range& src, const Range& dst, std::uint32_t count = 1) {
    return add(OpKind::reduce, src, dst, count);
  }

  Trace trace;

 private:
  ChunkOp& add(OpKind kind, const Range& src, const Range& dst, std::uint32_t count) {
    ChunkOp op;
    op.kind = kind;
    op.src = src;
    op.dst = op.local = dst;
    op.count = count;
    return trace.ops.emplace_back(op);
  }
};

// A trace, its dependencies, and its fusions.
struct Fused {
  explicit Fused(Trace given)
      : trace(std::move(given)),
        chunks(build_chunk_dag(trace)),
        lowered(lower(trace, chunks)),
        fusions(find_fusions(trace, chunks, lowered)),
        dag(fuse(trace, chunks, lowered, fusions)) {}

  ir::Opcode opcode(std::uint32_t node) const { return dag.nodes[node].opcode; }
  // The operation whose send was fused into the receive of `op`; kNone: none.
  std::uint32_t fused_into(std::uint32_t op) const {
    for (const Fusion& f : fusions) {
      if (f.recv_op == op) return f.send_op;
    }
    return kNone;
  }

  Trace trace;
  ChunkDag chunks;
  InstructionDag lowered;
  std::vector<Fusion> fusions;
  InstructionDag dag;
};

// The whole schedule of a trace without manual threadblocks.
struct Scheduled {
  Scheduled(Trace given, std::uint32_t slots, std::uint32_t limit = 0) : fused(std::move(given)) {
    channels = assign_channels(fused.trace, fused.fusions).value();
    dag = fuse(fused.trace, fused.chunks, fused.lowered, channels.fusions);
    threadblocks = assign_threadblocks(fused.trace, dag, channels, limit).value();
    order = order_instructions(fused.trace, dag, channels, threadblocks, slots);
  }
  const Trace& trace() const { return fused.trace; }
  std::uint32_t block_of(std::uint32_t node) const { return order.block_of[node]; }
  // The position of a node in the order.
  std::size_t place(std::uint32_t node) const {
    return static_cast<std::size_t>(std::ranges::find(order.nodes, node) - order.nodes.begin());
  }

  Fused fused;
  Channels channels;
  InstructionDag dag;
  Threadblocks threadblocks;
  Order order;
};

// Copies and reductions between random ranges of up to three chunks. The same seed gives the same trace.
inline Trace random_trace(std::uint32_t seed, std::uint32_t ranks, std::uint32_t ops) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  Traced t(ranks);
  while (t.trace.ops.size() < ops) {
    const std::uint32_t count = 1 + below(3);
    const auto place = [&](std::uint32_t first_buffer) {
      return Range{below(ranks), below(kExtent - count + 1), static_cast<BufferIndex>(first_buffer + below(2))};
    };
    const Range src = place(kInput);
    const Range dst = place(kOutput);
    if (src.rank == dst.rank && src.buffer == dst.buffer) continue;  // they might overlap
    if (below(2) == 0) {
      t.copy(src, dst, count);
    } else {
      t.reduce(src, dst, count);
    }
  }
  return std::move(t.trace);
}

}  // namespace gc3::compiler::testing
