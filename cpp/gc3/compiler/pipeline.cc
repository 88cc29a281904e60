#include "gc3/compiler/pipeline.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/compiler/chunk_dag.h"
#include "gc3/compiler/instruction_dag.h"
#include "gc3/compiler/passes/channels.h"
#include "gc3/compiler/passes/forward.h"
#include "gc3/compiler/passes/fuse.h"
#include "gc3/compiler/passes/manual.h"
#include "gc3/compiler/passes/number_threadblocks.h"
#include "gc3/compiler/passes/order.h"
#include "gc3/compiler/passes/place_results.h"
#include "gc3/compiler/passes/rename_ranks.h"
#include "gc3/compiler/passes/reuse_scratch.h"
#include "gc3/compiler/passes/split.h"
#include "gc3/compiler/passes/synchronize.h"
#include "gc3/compiler/passes/threadblocks.h"
#include "gc3/compiler/passes/window.h"
#include "gc3/compiler/schedule.h"
#include "gc3/ir/connections.h"
#include "gc3/ir/text.h"

namespace gc3::compiler {
namespace {

struct Scheduled {
  InstructionDag dag;
  Channels channels;
  Threadblocks threadblocks;
  Order order;
};

Status place(const Trace& trace, const ChunkDag& chunks, const InstructionDag& lowered,
             const std::vector<Fusion>& fusions, std::uint32_t limit, Scheduled& out) {
  if (is_manual(trace)) {
    out.dag = fuse(trace, chunks, lowered, fusions);
    GC3_ASSIGN(ManualSchedule manual, place_manually(trace, out.dag, fusions));
    GC3_CHECK(check_limit(manual.threadblocks, limit));
    out.channels = std::move(manual.channels);
    out.threadblocks = std::move(manual.threadblocks);
    return {};
  }
  GC3_ASSIGN(out.channels, assign_channels(trace, fusions));
  out.dag = fuse(trace, chunks, lowered, out.channels.fusions);
  GC3_ASSIGN(out.threadblocks, assign_threadblocks(trace, out.dag, out.channels, limit));
  return {};
}

// Without fusion, and in the order of the trace. One more threadblock may wait for windows.
Result<Scheduled> as_written(const Trace& trace, const ChunkDag& chunks, const InstructionDag& lowered,
                             const Options& options) {
  const std::uint32_t limit = options.max_threadblocks;
  Scheduled out;
  GC3_CHECK(place(trace, chunks, lowered, {}, limit > 1 ? limit - 1 : limit, out));
  out.threadblocks = in_order_of_use(trace, out.dag, std::move(out.threadblocks));
  out.order = trace_order(trace, out.dag, out.threadblocks);
  return out;
}

// A fused instruction holds its received slot until it can send, so with few slots such instructions can wait for each
// other in a cycle. The ones on which the order got stuck are unfused. The order of the trace, without fusion, always
// works.
Result<Scheduled> schedule(const Trace& trace, const ChunkDag& chunks, const Options& options) {
  constexpr int kRounds = 16;
  const InstructionDag lowered = lower(trace, chunks);
  if (options.window != 0) return as_written(trace, chunks, lowered, options);
  std::vector<Fusion> fusions;
  if (options.fuse && trace.protocol != model::Protocol::Copy) fusions = find_fusions(trace, chunks, lowered);
  Scheduled out;
  for (int round = 0; round < kRounds; ++round) {
    GC3_CHECK(place(trace, chunks, lowered, fusions, options.max_threadblocks, out));
    out.order = order_instructions(trace, out.dag, out.channels, out.threadblocks, options.slots);
    if (out.order.complete) return out;
    if (out.order.stuck.empty()) break;
    fusions = out.channels.fusions;
    std::erase_if(fusions, [&](const Fusion& f) {
      return std::binary_search(out.order.stuck.begin(), out.order.stuck.end(), f.recv_op);
    });
  }
  GC3_CHECK(place(trace, chunks, lowered, {}, options.max_threadblocks, out));
  out.order = trace_order(trace, out.dag, out.threadblocks);
  return out;
}

// The largest number of messages in flight on one connection when the order runs in sequence.
std::uint32_t slots_needed(const Scheduled& s) {
  std::uint32_t most = 1;
  std::vector<std::uint32_t> under_way(s.channels.connections.size(), 0);
  for (const std::uint32_t n : s.order.nodes) {
    // A fused instruction frees its slot only after it has sent its own message.
    if (s.dag.sends(n)) most = std::max(most, ++under_way[s.channels.connection_of[s.dag.nodes[n].sends]]);
    if (s.dag.receives(n)) --under_way[s.channels.connection_of[op_of(n)]];
  }
  return most;
}

Status check(const Options& options) {
  if (options.instances != 0 && options.slots != 0) return {};
  return Diagnostic(ErrorCode::BadArgument, options.slots == 0 ? "slots=0: a FIFO has at least one slot"
                                                               : "instances=0: there is at least one");
}

}  // namespace

Result<ir::Program> compile(const Trace& trace, const Options& options) {
  GC3_CHECK(check(options));
  if (trace.symmetry.exists()) {
    GC3_ASSIGN(const Trace whole, expand(trace));
    return compile(whole, options);
  }
  Trace placed = place_results(forward_copies(trace));
  if (options.scratch != kNone) placed = reuse_scratch(placed, options.scratch);
  GC3_ASSIGN(Trace renamed, rename_ranks(std::move(placed), options.order));
  GC3_ASSIGN(const Trace parts, split(number_threadblocks(std::move(renamed)), options.instances));
  const ChunkDag chunks = build_chunk_dag(parts);
  GC3_ASSIGN(const Scheduled s, schedule(parts, chunks, options));
  ir::Program program = synchronize(parts, s.dag, s.channels, s.threadblocks, s.order);
  if (options.window != 0) {
    ir::Compute compute = std::move(program.compute);
    program = wait_for_windows(program, s.threadblocks, s.order, options.window);
    program.compute = std::move(compute);
  }
  std::uint64_t scratch = 0;
  for (const ir::RankProgram& r : program.ranks) scratch += r.scratch_chunks;
  if (scratch > ir::kMaxScratchChunks) {
    return Diagnostic(ErrorCode::ProgramTooLarge, std::to_string(scratch) + " scratch chunks in all ranks together");
  }
  program.instances = options.instances;
  program.slots = slots_needed(s);
  GC3_CHECK(ir::check_copies(program));
  return program;
}

namespace {

// Whether each operation names chunks that all ranks have side by side.
bool keeps_chunks(const Trace& trace) {
  return std::ranges::all_of(trace.ops, [&](const ChunkOp& op) {
    return std::ranges::all_of(std::array{&op.src, &op.dst, &op.local}, [&](const Range* range) {
      return trace.symmetry.keeps(trace.axes[range->buffer], range->index, op.count);
    });
  });
}

}  // namespace

Result<std::optional<ir::ClassProgram>> compile_classes(const Trace& trace, const Options& options) {
  GC3_CHECK(check(options));
  const bool parts = std::ranges::any_of(trace.ops, [](const ChunkOp& op) { return op.factor != 1; });
  if (!trace.symmetry.exists() || options.instances != 1 || !options.order.empty() || options.window != 0 ||
      options.scratch != kNone || parts) {
    return std::optional<ir::ClassProgram>();
  }
  // They may leave of a copy only the chunks that are needed, and these may be side by side on some ranks alone.
  Trace placed = place_results(forward_copies(trace));
  if (!keeps_chunks(placed)) placed = trace;
  placed.extents = trace.extents;  // translations need whole axes
  if (!keeps_chunks(placed)) return std::optional<ir::ClassProgram>();
  placed = number_threadblocks(std::move(placed));
  const ChunkDag chunks = build_chunk_dag(placed);
  GC3_ASSIGN(const Scheduled s, schedule(placed, chunks, options));
  ir::ClassProgram out{synchronize(placed, s.dag, s.channels, s.threadblocks, s.order), placed.symmetry, {}};
  out.representative.slots = slots_needed(s);
  GC3_CHECK(ir::check_copies(out.representative));
  std::uint32_t begin = 0;
  for (std::size_t b = 0; b < placed.axes.size(); ++b) {
    out.regions.push_back({static_cast<model::Buffer>(std::min<std::size_t>(b, kScratch)), begin, placed.axes[b]});
    if (b >= kScratch) begin += placed.extents[b][0];
  }
  return std::optional(std::move(out));
}

Result<std::string> dump(const Trace& trace, const Options& options, Stage stage) {
  GC3_CHECK(check(options));
  if (trace.symmetry.exists()) {
    GC3_ASSIGN(const Trace whole, expand(trace));
    return dump(whole, options, stage);
  }
  if (stage == Stage::trace) return to_text(trace);
  const Trace forwarded = forward_copies(trace);
  if (stage == Stage::forward_copies) return to_text(forwarded);
  Trace placed = place_results(forwarded);
  if (stage == Stage::place_results) return to_text(placed);
  if (options.scratch != kNone) placed = reuse_scratch(placed, options.scratch);
  if (stage == Stage::reuse_scratch) return to_text(placed);
  GC3_ASSIGN(const Trace renamed, rename_ranks(placed, options.order));
  if (stage == Stage::rename_ranks) return to_text(renamed);
  GC3_ASSIGN(const Trace parts, split(number_threadblocks(renamed), options.instances));
  if (stage == Stage::split) return to_text(parts);
  const ChunkDag chunks = build_chunk_dag(parts);
  if (stage == Stage::chunk_dag) return to_text(parts, chunks);
  if (stage == Stage::lower) return to_text(parts, lower(parts, chunks));
  GC3_ASSIGN(const Scheduled s, schedule(parts, chunks, options));
  if (stage == Stage::instructions) return to_text(parts, s.dag);
  if (stage == Stage::channels) return to_text(parts, s.channels);
  if (stage == Stage::threadblocks) return to_text(parts, s.channels, s.threadblocks);
  if (stage == Stage::schedule) return to_text(parts, s.dag, s.channels, s.threadblocks, s.order);
  GC3_ASSIGN(const ir::Program program, compile(trace, options));
  return ir::to_text(program);
}

}  // namespace gc3::compiler
