#include "gc3/compiler/passes/synchronize.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "gc3/base/interrupt.h"

namespace gc3::compiler {
namespace {

using model::Buffer;

// The steps that are known to be finished once a given step is: their number, per threadblock of the rank. Steps
// without dependencies share the row of the step before them. So there are as many rows as steps that wait for another
// threadblock.
class Clocks {
 public:
  explicit Clocks(std::uint32_t tbs) : tbs_(tbs), row_of_tb_(tbs, kNone), steps_(tbs, 0) {}

  struct Stamp {
    std::uint32_t tb = 0;
    std::uint32_t step = 0;
    std::uint32_t row = kNone;  // kNone: nothing known of other threadblocks
  };

  bool knows(const Stamp& later, std::uint32_t tb, std::uint32_t step) const {
    if (later.tb == tb) return step <= later.step;
    return later.row != kNone && rows_[static_cast<std::size_t>(later.row) * tbs_ + tb] > step;
  }
  // The state of threadblock `tb` before its next step.
  Stamp before(std::uint32_t tb) const { return {tb, steps_[tb], row_of_tb_[tb]}; }

  // Makes room for a step that waits for `others`, which the next call of `finish` returns as known.
  void wait_for(std::uint32_t tb, const std::vector<Stamp>& others) {
    if (others.empty()) return;
    const auto row = static_cast<std::uint32_t>(rows_.size() / tbs_);
    rows_.resize(rows_.size() + tbs_, 0);
    std::uint32_t* mine = rows_.data() + static_cast<std::size_t>(row) * tbs_;
    if (row_of_tb_[tb] != kNone) {
      const std::uint32_t* old = rows_.data() + static_cast<std::size_t>(row_of_tb_[tb]) * tbs_;
      std::copy(old, old + tbs_, mine);
    }
    for (const Stamp& other : others) {
      if (other.row != kNone) {
        const std::uint32_t* theirs = rows_.data() + static_cast<std::size_t>(other.row) * tbs_;
        for (std::uint32_t t = 0; t < tbs_; ++t) mine[t] = std::max(mine[t], theirs[t]);
      }
      mine[other.tb] = std::max(mine[other.tb], other.step + 1);
    }
    row_of_tb_[tb] = row;
  }

  Stamp finish(std::uint32_t tb) {
    const Stamp stamp = before(tb);
    ++steps_[tb];
    return stamp;
  }

 private:
  std::uint32_t tbs_;
  std::vector<std::uint32_t> rows_;
  std::vector<std::uint32_t> row_of_tb_;
  std::vector<std::uint32_t> steps_;
};

class Emitter {
 public:
  Emitter(const Trace& trace, const InstructionDag& dag, const Channels& channels, const Threadblocks& threadblocks,
          const Order& order)
      : trace_(trace), dag_(dag), channels_(channels), threadblocks_(threadblocks), order_(order) {}

  ir::Program run() {
    program_.name = trace_.name;
    program_.collective = trace_.collective;
    program_.protocol = trace_.protocol;
    lay_out_scratch();
    sort_by_block();
    for (std::uint32_t r = 0; r < trace_.ranks(); ++r) emit_rank(r);
    lay_out_dependencies();
    lay_out_source();
    lay_out_groups();
    lay_out_compute();
    return std::move(program_);
  }

 private:
  // Named scratch buffers of a rank are laid out one after the other in its scratch area, without places that no
  // instruction uses: those of sums that are sent at once, or of copies that a pass has removed.
  void lay_out_scratch() {
    scratch_.assign(trace_.extents.size(), std::vector<std::vector<std::uint32_t>>(trace_.ranks()));
    for (std::size_t b = kScratch; b < trace_.extents.size(); ++b) {
      for (std::uint32_t r = 0; r < trace_.ranks(); ++r) scratch_[b][r].assign(trace_.extents[b][r], 0);
    }
    for (const std::uint32_t n : order_.nodes) {
      const auto [read, written] = ranges(n);
      if (const Applied* applied = applied_by(n)) {
        for (const auto& all : {applied->reads, applied->writes}) {
          for (const Range& range : all) {
            if (range.buffer >= kScratch) scratch_[range.buffer][range.rank][range.index] = 1;
          }
        }
        continue;
      }
      for (const Range* range : {read, written}) {
        if (range == nullptr || range->buffer < kScratch) continue;
        const auto first = scratch_[range->buffer][range->rank].begin() + range->index;
        std::fill_n(first, trace_.ops[op_of(n)].count, 1U);
      }
    }
    program_.ranks.resize(trace_.ranks());
    for (std::uint32_t r = 0; r < trace_.ranks(); ++r) {
      std::uint32_t used = 0;
      for (std::size_t b = kScratch; b < trace_.extents.size(); ++b) {
        // Translations need whole axes.
        if (trace_.symmetry.exists()) std::ranges::fill(scratch_[b][r], 1U);
        for (std::uint32_t& place : scratch_[b][r]) used += std::exchange(place, used);
      }
      program_.ranks[r].scratch_chunks = used;
    }
  }

  // Nodes grouped by block, in order; and per rank, in order.
  void sort_by_block() {
    const auto& block_of = order_.block_of;
    first_of_block_.assign(threadblocks_.blocks.size() + 1, 0);
    for (const std::uint32_t n : order_.nodes) ++first_of_block_[block_of[n] + 1];
    for (std::size_t b = 0; b < threadblocks_.blocks.size(); ++b) first_of_block_[b + 1] += first_of_block_[b];
    step_of_.assign(dag_.nodes.size(), 0);
    std::vector<std::uint32_t> filled(threadblocks_.blocks.size(), 0);
    rank_nodes_.resize(trace_.ranks());
    Breath breathe;
    for (const std::uint32_t n : order_.nodes) {
      breathe();
      step_of_[n] = filled[block_of[n]]++;
      rank_nodes_[threadblocks_.blocks[block_of[n]].rank].push_back(n);
    }
    program_.instructions.resize(order_.nodes.size());
    stamps_.resize(dag_.nodes.size());
  }

  void emit_rank(std::uint32_t rank) {
    const std::uint32_t first = threadblocks_.first_of_rank[rank];
    const std::uint32_t tbs = threadblocks_.count(rank);
    program_.ranks[rank].first_tb = first;
    program_.ranks[rank].tb_count = tbs;
    for (std::uint32_t b = first; b < first + tbs; ++b) {
      const Block& block = threadblocks_.blocks[b];
      ir::Threadblock tb;
      tb.channel = block.channel;
      if (block.send_connection != kNone) tb.send_peer = channels_.connections[block.send_connection].receiver;
      if (block.recv_connection != kNone) {
        const Connection& from = channels_.connections[block.recv_connection];
        tb.recv_peer = trace_.symmetry.exists() ? trace_.symmetry.minus(0, from.receiver) : from.sender;
      }
      tb.first_instruction = first_of_block_[b];
      tb.instruction_count = first_of_block_[b + 1] - first_of_block_[b];
      program_.threadblocks.push_back(tb);
    }
    if (tbs == 0) return;
    Clocks clocks(tbs);
    Breath breathe;
    for (const std::uint32_t n : rank_nodes_[rank]) {
      breathe();
      const std::uint32_t tb = order_.block_of[n] - first;
      const auto& needed = needed_dependencies(n, tb, clocks);
      ir::Instruction instruction = encode(n);
      instruction.dep_begin = static_cast<std::uint32_t>(program_.dependencies.size());
      instruction.dep_count = static_cast<std::uint32_t>(needed.size());
      for (const Clocks::Stamp& d : needed) {
        program_.dependencies.push_back({d.tb, d.step});
        program_.instructions[first_of_block_[first + d.tb] + d.step].has_dependents = 1;
      }
      ir::Instruction& slot = program_.instructions[first_of_block_[order_.block_of[n]] + step_of_[n]];
      instruction.has_dependents = slot.has_dependents;
      slot = instruction;
      clocks.wait_for(tb, needed);
      stamps_[n] = clocks.finish(tb);
    }
  }

  // The predecessors in other threadblocks that are implied neither by this threadblock's past nor by each other.
  const std::vector<Clocks::Stamp>& needed_dependencies(std::uint32_t n, std::uint32_t tb, const Clocks& clocks) {
    candidates_.clear();
    needed_.clear();
    const Clocks::Stamp mine = clocks.before(tb);
    for (const std::uint32_t p : dag_.preds_of(n)) {
      const Clocks::Stamp& stamp = stamps_[p];
      if (stamp.tb != tb && !clocks.knows(mine, stamp.tb, stamp.step)) candidates_.push_back(stamp);
    }
    for (const Clocks::Stamp& c : candidates_) {
      const bool implied = std::any_of(candidates_.begin(), candidates_.end(), [&](const Clocks::Stamp& other) {
        const bool same = other.tb == c.tb && other.step == c.step;
        return !same && clocks.knows(other, c.tb, c.step);
      });
      const bool repeated = std::any_of(needed_.begin(), needed_.end(), [&](const Clocks::Stamp& other) {
        return other.tb == c.tb && other.step == c.step;
      });
      if (!implied && !repeated) needed_.push_back(c);
    }
    std::sort(needed_.begin(), needed_.end(), [](const auto& a, const auto& b) { return a.tb < b.tb; });
    return needed_;
  }

  // Dependencies were found in the order of execution; a program stores them in the order of its instructions.
  void lay_out_dependencies() {
    std::vector<ir::Dependency> sorted;
    sorted.reserve(program_.dependencies.size());
    for (ir::Instruction& i : program_.instructions) {
      const auto own = program_.deps(i);
      i.dep_begin = static_cast<std::uint32_t>(sorted.size());
      sorted.insert(sorted.end(), own.begin(), own.end());
    }
    program_.dependencies = std::move(sorted);
  }

  // An instruction has the line of the operation that it does; a fused one that of the operation whose data it
  // receives.
  void lay_out_source() {
    ir::Source& source = program_.source;
    std::map<std::string_view, std::uint32_t> files;
    for (std::size_t k = 0; k < trace_.locations.size(); ++k) {
      const SourceLocation& where = trace_.locations[k];
      const auto [file, is_new] = files.try_emplace(where.file, static_cast<std::uint32_t>(files.size()));
      if (is_new) source.files.push_back(where.file);
      const LocationId caller = trace_.callers[k];
      source.lines.push_back({file->second, static_cast<std::uint32_t>(std::max(where.line, 0)), caller.value});
    }
    source.line_of.assign(program_.instructions.size(), kNone);
    for (const std::uint32_t n : order_.nodes) {
      const LocationId where = trace_.ops[op_of(n)].where;
      if (!trace_.location(where).known()) continue;
      source.line_of[first_of_block_[order_.block_of[n]] + step_of_[n]] = where.value;
    }
  }

  // Each lane has groups of its own, numbered in the order of the operations.
  void lay_out_groups() {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> numbers;
    const auto number = [&](const ChunkOp& op, OpKind kind) {
      if (op.group == kNone || op.kind != kind) return kNone;
      return numbers.try_emplace({op.group, op.lane}, static_cast<std::uint32_t>(numbers.size())).first->second;
    };
    for (const ChunkOp& op : trace_.ops) number(op, op.kind);
    if (numbers.empty()) return;
    program_.switched.resize(program_.instructions.size());
    for (const std::uint32_t n : order_.nodes) {
      ir::Switched& groups = program_.switched[first_of_block_[order_.block_of[n]] + step_of_[n]];
      if (dag_.sends(n)) groups.multicast = number(trace_.ops[dag_.nodes[n].sends], OpKind::copy);
      if (dag_.receives(n)) groups.reduction = number(trace_.ops[op_of(n)], OpKind::reduce);
    }
  }

  // In the order of the steps.
  void lay_out_compute() {
    ir::Compute& compute = program_.compute;
    compute.lengths = trace_.lengths;
    std::vector<const Applied*> by_step(program_.instructions.size());
    for (const std::uint32_t n : order_.nodes) {
      by_step[first_of_block_[order_.block_of[n]] + step_of_[n]] = applied_by(n);
    }
    for (std::size_t at = 0; at < by_step.size(); ++at) {
      const Applied* applied = by_step[at];
      if (applied == nullptr) continue;
      ir::Instruction& step = program_.instructions[at];
      step.src_chunk = static_cast<std::uint32_t>(compute.applications.size());
      step.count = static_cast<std::uint32_t>(applied->reads.size() + applied->writes.size());
      compute.applications.push_back({applied->operation, static_cast<std::uint32_t>(compute.operands.size()),
                                      static_cast<std::uint32_t>(applied->reads.size()),
                                      static_cast<std::uint32_t>(applied->writes.size())});
      for (const Range& range : applied->reads) {
        const auto [buffer, chunk] = place(range);
        compute.operands.push_back({buffer, chunk, 0});
      }
      for (std::size_t k = 0; k < applied->writes.size(); ++k) {
        const auto [buffer, chunk] = place(applied->writes[k]);
        compute.operands.push_back({buffer, chunk, applied->lengths[k]});
      }
    }
  }

  const Applied* applied_by(std::uint32_t n) const {
    const ChunkOp& op = trace_.ops[op_of(n)];
    return op.kind == OpKind::apply ? &trace_.applied[op.applied] : nullptr;
  }

  std::pair<Buffer, std::uint32_t> place(const Range& range) const {
    if (range.buffer < kScratch) return {static_cast<Buffer>(range.buffer), range.index};
    return {Buffer::scratch, scratch_[range.buffer][range.rank][range.index]};
  }

  // What an instruction reads and writes in the memory of its rank; null: nothing.
  std::pair<const Range*, const Range*> ranges(std::uint32_t n) const {
    const ChunkOp& op = trace_.ops[op_of(n)];
    const ir::OpcodeInfo& about = ir::info(dag_.nodes[n].opcode);
    // A receive-reduce adds to the destination of the operation.
    const Range* read = about.receives ? &op.local : &op.src;
    return {about.reads_local ? read : nullptr, about.writes_local ? &op.dst : nullptr};
  }

  ir::Instruction encode(std::uint32_t n) const {
    const ChunkOp& op = trace_.ops[op_of(n)];
    const auto [read, written] = ranges(n);
    ir::Instruction out;
    out.opcode = dag_.nodes[n].opcode;
    out.count = op.count;
    if (read != nullptr) std::tie(out.src_buffer, out.src_chunk) = place(*read);
    if (written != nullptr) std::tie(out.dst_buffer, out.dst_chunk) = place(*written);
    return out;
  }

  const Trace& trace_;
  const InstructionDag& dag_;
  const Channels& channels_;
  const Threadblocks& threadblocks_;
  const Order& order_;
  ir::Program program_;
  // [buffer][rank][index]: the place in the rank's scratch area
  std::vector<std::vector<std::vector<std::uint32_t>>> scratch_;
  std::vector<std::uint32_t> first_of_block_;
  std::vector<std::uint32_t> step_of_;  // per node
  std::vector<std::vector<std::uint32_t>> rank_nodes_;
  std::vector<Clocks::Stamp> stamps_;  // per node
  std::vector<Clocks::Stamp> candidates_;
  std::vector<Clocks::Stamp> needed_;
};

}  // namespace

ir::Program synchronize(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                        const Threadblocks& threadblocks, const Order& order) {
  return Emitter(trace, dag, channels, threadblocks, order).run();
}

}  // namespace gc3::compiler
