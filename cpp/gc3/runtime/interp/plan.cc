#include "gc3/runtime/interp/plan.h"

#include <algorithm>
#include <utility>

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
    plan_.collective = program_.collective;
    plan_.protocol = model::format_of(program_.protocol);
    plan_.pulls = program_.protocol == model::Protocol::Pull;
    plan_.copied = program_.protocol == model::Protocol::Copy;
    plan_.slots = std::max(program_.slots, 1U);
    plan_.source = program_.source;
    plan_.compute = program_.compute;
    for (std::uint32_t r = 0; r < program_.ranks.size(); ++r) add_rank(r);
    for (const ir::Connection& c : connections.all) {
      if (c.messages != 0) add_connection(c);
    }
    for (PlanThreadblock& tb : plan_.threadblocks) decode(tb);
    plan_.moves_between_classes = moves_between_classes(plan_);
    return std::move(plan_);
  }

 private:
  void add_rank(std::uint32_t rank) {
    const ir::RankProgram& from = program_.ranks[rank];
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
      const ir::Threadblock& tb = program_.threadblocks[from.first_tb + t];
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

  void add_connection(const ir::Connection& connection) {
    const auto id = static_cast<std::uint32_t>(plan_.connections.size());
    plan_.threadblocks[connection.send_tb].send_connection = id;
    plan_.threadblocks[connection.recv_tb].recv_connection = id;
    plan_.connections.push_back({connection.send_tb, connection.recv_tb});
  }

  void decode(PlanThreadblock& tb) {
    tb.first_wait = static_cast<std::uint32_t>(plan_.waits.size());
    const PlanRank& rank = plan_.ranks[tb.rank];
    for (const ir::Instruction& from : program_.steps(program_.tbs(tb.rank)[tb.tb])) {
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

std::array<Copied, 2> Plan::copies(std::uint32_t rank, std::uint64_t count, bool scales) const {
  const PlanRank& has = ranks[rank];
  std::array<Copied, 2> made;
  if ((pads(count) || has.copies_input || scales) && count != 0 && !has.input_aliased) {
    made[0] = {has.input_blocks, has.alias_block, has.output_aliased ? has.output_blocks : 0};
  }
  if (pads(count) && !has.output_aliased) made[1] = {has.output_blocks, 0, has.output_blocks};
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
