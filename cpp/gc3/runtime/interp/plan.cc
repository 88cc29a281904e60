#include "gc3/runtime/interp/plan.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/ir/connections.h"
#include "gc3/runtime/interp/chunk_classes.h"

namespace gc3::interp {
namespace {

using model::Buffer;

class Planner {
 public:
  explicit Planner(const ir::Program& program) : program_(program) {}

  Result<Plan> run() {
    GC3_ASSIGN(const ir::Connections connections, ir::checked_connections(program_));
    begin();
    for (std::uint32_t r = 0; r < program_.ranks.size(); ++r) add_rank(r, program_.ranks[r], program_.tbs(r));
    for (const ir::Connection& c : connections.all) {
      if (c.messages != 0) add_connection(c.send_tb, c.recv_tb);
    }
    for (PlanThreadblock& tb : plan_.threadblocks) decode(tb, program_.tbs(tb.rank));
    plan_.moves_between_classes = moves_between_classes(plan_);
    return std::move(plan_);
  }

  // `program_` has the steps of this rank alone.
  Result<Plan> run_alone(const ir::ClassProgram& all, std::uint32_t rank) {
    GC3_ASSIGN(const ir::Connections connections, ir::checked_connections(all));
    begin();
    plan_.only = rank;
    ir::RankProgram each = program_.ranks.front();
    const std::uint32_t count = each.tb_count;
    for (std::uint32_t r = 0; r < all.ranks(); ++r, each.first_tb += count) {
      add_rank(r, each, all.representative.tbs(0));
      for (std::uint32_t t = 0; t < count; ++t) {
        PlanThreadblock& tb = plan_.threadblocks[each.first_tb + t];
        if (tb.send_peer != ir::kNoRank) tb.send_peer = all.symmetry.plus(r, tb.send_peer);
        if (tb.recv_peer != ir::kNoRank) tb.recv_peer = all.symmetry.plus(r, tb.recv_peer);
        if (r != rank) tb.step_count = 0;
      }
    }
    for (const ir::Connection& c : connections.all) {
      if (c.messages == 0) continue;
      // Both ends are those of rank 0, whose receiving one stands for that of the peer.
      for (std::uint32_t r = 0; r < all.ranks(); ++r) {
        const PlanThreadblock& sender = plan_.threadblocks[r * count + c.send_tb];
        add_connection(r * count + c.send_tb, sender.send_peer * count + c.recv_tb);
      }
    }
    for (std::uint32_t t = 0; t < count; ++t) decode(plan_.threadblocks[rank * count + t], program_.tbs(0));
    plan_.moves_between_classes = plan_.collective.chunks() > 1;  // where the other ranks move data is not looked at
    return std::move(plan_);
  }

 private:
  void begin() {
    plan_.collective = program_.collective;
    plan_.protocol = model::format_of(program_.protocol);
    plan_.pulls = program_.protocol == model::Protocol::Pull;
    plan_.copied = program_.protocol == model::Protocol::Copy;
    plan_.slots = std::max(program_.slots, 1U);
    plan_.source = program_.source;
    plan_.compute = program_.compute;
  }

  void add_rank(std::uint32_t rank, const ir::RankProgram& from, std::span<const ir::Threadblock> tbs) {
    const model::Collective& collective = program_.collective;
    PlanRank to;
    to.first_tb = from.first_tb;
    to.tb_count = from.tb_count;
    to.scratch_chunks = from.scratch_chunks;
    to.input_blocks = collective.input_blocks(rank);
    to.output_blocks = collective.output_blocks(rank);
    const model::Place input = collective.canonical(rank, {Buffer::input, 0});
    const model::Place output = collective.canonical(rank, {Buffer::output, 0});
    to.input_aliased = input.buffer != Buffer::input;
    to.output_aliased = output.buffer != Buffer::output;
    to.alias_block = (to.input_aliased ? input.index : output.index) / collective.chunks();
    plan_.ranks.push_back(to);
    for (std::uint32_t t = 0; t < from.tb_count; ++t) {
      const ir::Threadblock& tb = tbs[t];
      PlanThreadblock made;
      made.rank = rank;
      made.tb = t;
      made.first_step = tb.first_instruction;
      made.step_count = tb.instruction_count;
      made.send_peer = tb.send_peer;
      made.recv_peer = tb.recv_peer;
      made.channel = tb.channel;
      plan_.threadblocks.push_back(made);
    }
  }

  void add_connection(std::uint32_t sender_tb, std::uint32_t receiver_tb) {
    const auto id = static_cast<std::uint32_t>(plan_.connections.size());
    plan_.threadblocks[sender_tb].send_connection = id;
    plan_.threadblocks[receiver_tb].recv_connection = id;
    plan_.connections.push_back({sender_tb, receiver_tb});
  }

  void decode(PlanThreadblock& tb, std::span<const ir::Threadblock> tbs) {
    tb.first_wait = static_cast<std::uint32_t>(plan_.waits.size());
    const PlanRank& rank = plan_.ranks[tb.rank];
    for (const ir::Instruction& from : program_.steps(tbs[tb.tb])) {
      const ir::OpcodeInfo& does = ir::info(from.opcode);
      Step step;
      step.opcode = static_cast<Op>(from.opcode);
      step.publishes = from.has_dependents;
      step.count = from.count;
      step.wait_begin = static_cast<std::uint32_t>(plan_.waits.size());
      step.wait_count = from.dep_count;
      if (from.opcode == ir::Opcode::apply) step.src.chunk = from.src_chunk;
      if (does.reads_local) step.src = operand(from.src_buffer, from.src_chunk, step);
      if (does.writes_local) step.dst = operand(from.dst_buffer, from.dst_chunk, step);
      if (does.writes_local && step.dst.buffer == 0 && !within_output(rank, step)) {
        plan_.ranks[tb.rank].copies_input = true;
      }
      if (does.sends || does.receives) plan_.max_count = std::max(plan_.max_count, from.count);
      for (const ir::Dependency& d : program_.deps(from)) {
        plan_.waits.push_back({d.tb, plan_.threadblocks[rank.first_tb + d.tb].step_count, d.step + 1});
      }
      plan_.steps.push_back(step);
    }
    tb.wait_count = static_cast<std::uint32_t>(plan_.waits.size()) - tb.first_wait;
  }

  Operand operand(Buffer buffer, std::uint32_t chunk, Step& step) const {
    if (buffer == Buffer::scratch) return {2, chunk, 0, chunk};
    const std::uint32_t chunks = program_.collective.chunks();
    const Operand out = {static_cast<std::uint32_t>(buffer), chunk, chunk / chunks, chunk % chunks};
    if (std::uint64_t{out.index} + step.count > chunks) step.one_block = 0;
    return out;
  }

  // Whether a step that writes to the input, in place, writes only to the output within it.
  bool within_output(const PlanRank& has, const Step& step) const {
    const std::uint64_t first = std::uint64_t{has.alias_block} * plan_.collective.chunks();
    const std::uint64_t last = first + std::uint64_t{has.output_blocks} * plan_.collective.chunks();
    return step.dst.chunk >= first && std::uint64_t{step.dst.chunk} + step.count <= last;
  }

  const ir::Program& program_;
  Plan plan_;
};

}  // namespace

Result<Plan> Plan::create(const ir::Program& program) {
  GC3_CHECK(ir::check_plain(program, "such a run"));
  return Planner(program).run();
}

Result<Plan> Plan::create_computing(const ir::Program& program) { return Planner(program).run(); }

Result<Plan> Plan::create(const ir::ClassProgram& program, std::uint32_t rank) {
  const std::uint64_t threadblocks = std::uint64_t{program.ranks()} * program.representative.threadblocks.size();
  if (threadblocks > ir::kMostExpanded) {
    return Diagnostic(ErrorCode::ProgramTooLarge, "'" + program.representative.name + "' has " +
                                                      std::to_string(threadblocks) +
                                                      " threadblocks on all ranks together; a run can connect " +
                                                      std::to_string(ir::kMostExpanded));
  }
  GC3_ASSIGN(const ir::Program own, ir::expand(program, std::array{rank}));
  return Planner(own).run_alone(program, rank);
}

std::array<Copied, 2> Plan::copies(std::uint32_t rank, std::uint64_t count, bool scales,
                                   std::array<bool, 2> also) const {
  const PlanRank& has = ranks[rank];
  std::array<Copied, 2> made;
  if ((pads(count) || has.copies_input || scales || also[0]) && count != 0 && !has.input_aliased) {
    made[0] = {has.input_blocks, has.alias_block, has.output_aliased ? has.output_blocks : 0};
  }
  if ((pads(count) || also[1]) && !has.output_aliased) made[1] = {has.output_blocks, 0, has.output_blocks};
  return made;
}

Tiling Plan::tiling(std::uint64_t count, std::uint64_t elem_bytes, std::uint64_t slot_data) const {
  const std::uint64_t chunks = collective.chunks();
  Tiling t;
  t.chunk_elems = count / chunks + (count % chunks != 0 ? 1 : 0);
  t.tile_elems = std::min(t.chunk_elems, slot_data / max_count / elem_bytes);
  // Tiles are whole cache lines, so the first elements of all tiles are aligned alike.
  const std::uint64_t line_elems = 64 / elem_bytes;
  if (t.tile_elems < t.chunk_elems && t.tile_elems > line_elems) t.tile_elems -= t.tile_elems % line_elems;
  if (t.tile_elems != 0) t.tiles = t.chunk_elems / t.tile_elems + (t.chunk_elems % t.tile_elems != 0 ? 1 : 0);
  return t;
}

Task Plan::task(std::uint32_t threadblock, const Region* regions, Counter* semaphores, const Step* steps_at,
                const Wait* waits_at) const {
  const PlanThreadblock& tb = threadblocks[threadblock];
  Task task;
  task.steps = steps_at + tb.first_step;
  task.waits = waits_at;
  task.regions = regions;
  task.semaphores = semaphores;
  task.step_count = tb.step_count;
  task.rank = tb.rank;
  task.tb = tb.tb;
  return task;
}

std::string Plan::place(std::uint32_t threadblock, std::uint32_t step) const {
  const PlanThreadblock& tb = threadblocks[threadblock];
  std::string out =
      "rank " + std::to_string(tb.rank) + " threadblock " + std::to_string(tb.tb) + " step " + std::to_string(step);
  if (tb.first_step + step < steps.size() && step < tb.step_count) {
    const std::uint32_t at = tb.first_step + step;
    out += ir::in_brackets(ir::info(static_cast<ir::Opcode>(steps[at].opcode)).xml, source, at);
  }
  return out;
}

}  // namespace gc3::interp
