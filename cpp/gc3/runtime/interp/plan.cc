#include "gc3/runtime/interp/plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "gc3/runtime/interp/chunk_classes.h"

namespace gc3::interp {
namespace {

using model::Buffer;

Diagnostic malformed(const std::string& where, const std::string& what) {
  return Diagnostic(ErrorCode::BadStructure, where + ": " + what);
}

class Planner {
 public:
  explicit Planner(const ir::Program& program) : program_(program) {}

  Result<Plan> run() {
    plan_.collective = program_.collective;
    plan_.protocol = program_.protocol;
    plan_.slots = std::max(program_.slots, 1U);
    if (program_.ranks.size() != program_.collective.ranks() || program_.ranks.empty()) {
      return malformed("program", "has " + std::to_string(program_.ranks.size()) + " ranks, its collective " +
                                      std::to_string(program_.collective.ranks()));
    }
    for (std::uint32_t r = 0; r < program_.ranks.size(); ++r) GC3_CHECK(add_rank(r));
    for (std::uint32_t t = 0; t < plan_.threadblocks.size(); ++t) GC3_CHECK(connect(t));
    for (std::uint32_t t = 0; t < plan_.threadblocks.size(); ++t) GC3_CHECK(decode(t));
    GC3_CHECK(match_transfers());
    plan_.moves_between_classes = moves_between_classes(plan_);
    return std::move(plan_);
  }

 private:
  Status add_rank(std::uint32_t rank) {
    const ir::RankProgram& from = program_.ranks[rank];
    const model::Collective& collective = program_.collective;
    const std::string where = "rank " + std::to_string(rank);
    if (std::uint64_t{from.first_tb} + from.tb_count > program_.threadblocks.size()) {
      return malformed(where, "its threadblocks do not exist");
    }
    PlanRank to;
    to.first_tb = static_cast<std::uint32_t>(plan_.threadblocks.size());
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
      if (std::uint64_t{tb.first_instruction} + tb.instruction_count > program_.instructions.size()) {
        return malformed(where + " threadblock " + std::to_string(t), "its instructions do not exist");
      }
      PlanThreadblock made;
      made.rank = rank;
      made.tb = t;
      made.step_count = tb.instruction_count;
      made.send_peer = tb.send_peer;
      made.recv_peer = tb.recv_peer;
      made.channel = tb.channel;
      plan_.threadblocks.push_back(made);
    }
    return {};
  }

  // Enters the threadblock at the ends of the connections its steps use.
  Status connect(std::uint32_t index) {
    PlanThreadblock& tb = plan_.threadblocks[index];
    bool sends = false;
    bool receives = false;
    for (const ir::Instruction& i : instructions(tb)) {
      if (static_cast<std::size_t>(i.opcode) >= ir::kOpcodeCount) return malformed(plan_.place(index, 0), "bad opcode");
      sends |= ir::info(i.opcode).sends;
      receives |= ir::info(i.opcode).receives;
    }
    if (sends) GC3_CHECK(enter(index, tb.rank, tb.send_peer, tb.send_connection, &Connection::sender_tb));
    if (receives) GC3_CHECK(enter(index, tb.recv_peer, tb.rank, tb.recv_connection, &Connection::receiver_tb));
    return {};
  }

  Status enter(std::uint32_t index, std::uint32_t from, std::uint32_t to, std::uint32_t& connection,
               std::uint32_t Connection::* end) {
    const std::uint32_t channel = plan_.threadblocks[index].channel;
    const std::uint32_t peer = end == &Connection::sender_tb ? to : from;
    if (peer >= plan_.ranks.size()) {
      return malformed("rank " + std::to_string(plan_.threadblocks[index].rank) + " threadblock " +
                           std::to_string(plan_.threadblocks[index].tb),
                       "uses a connection but has no such peer");
    }
    const auto [entry, made] =
        by_name_.try_emplace({from, to, channel}, static_cast<std::uint32_t>(plan_.connections.size()));
    if (made) plan_.connections.push_back({kNoConnection, kNoConnection});
    connection = entry->second;
    std::uint32_t& taken = plan_.connections[connection].*end;
    if (taken != kNoConnection) {
      return Diagnostic(ErrorCode::SharedConnection, "connection " + name(from, to, channel) + ": threadblocks " +
                                                         std::to_string(plan_.threadblocks[taken].tb) + " and " +
                                                         std::to_string(plan_.threadblocks[index].tb) + " of rank " +
                                                         std::to_string(plan_.threadblocks[index].rank));
    }
    taken = index;
    return {};
  }

  Status decode(std::uint32_t index) {
    PlanThreadblock& tb = plan_.threadblocks[index];
    tb.first_step = static_cast<std::uint32_t>(plan_.steps.size());
    for (const ir::Instruction& from : instructions(tb)) {
      const ir::OpcodeInfo& does = ir::info(from.opcode);
      const auto where = [&] {
        return plan_.place(index, static_cast<std::uint32_t>(plan_.steps.size()) - tb.first_step);
      };
      Step step;
      step.opcode = static_cast<Op>(from.opcode);
      step.publishes = from.has_dependents;
      step.count = from.count;
      step.wait_begin = static_cast<std::uint32_t>(plan_.waits.size());
      step.wait_count = from.dep_count;
      if (step.opcode != Op::nop && from.count == 0) return malformed(where(), "moves no chunks");
      if (does.reads_local) GC3_CHECK(operand(where, tb.rank, from.src_buffer, from.src_chunk, step, step.src));
      if (does.writes_local) {
        GC3_CHECK(operand(where, tb.rank, from.dst_buffer, from.dst_chunk, step, step.dst));
        GC3_CHECK(writable(where, tb.rank, step));
        if (step.dst.buffer == 0 && !within_output(tb.rank, step)) plan_.ranks[tb.rank].copies_input = true;
      }
      if (does.sends || does.receives) plan_.max_count = std::max(plan_.max_count, from.count);
      GC3_CHECK(add_waits(where, tb, from));
      plan_.steps.push_back(step);
    }
    return {};
  }

  template <class Where>
  Status operand(const Where& where, std::uint32_t rank, Buffer buffer, std::uint32_t chunk, Step& step, Operand& out) {
    const model::Collective& collective = program_.collective;
    std::uint64_t size = 0;
    switch (buffer) {
      case Buffer::input:
        size = collective.input_chunks(rank);
        break;
      case Buffer::output:
        size = collective.output_chunks(rank);
        break;
      case Buffer::scratch:
        size = program_.ranks[rank].scratch_chunks;
        break;
    }
    if (std::uint64_t{chunk} + step.count > size) {
      return malformed(where(), "names " + std::string(model::name_of(buffer)) + " chunks " + std::to_string(chunk) +
                                    " to " + std::to_string(std::uint64_t{chunk} + step.count - 1) + " of " +
                                    std::to_string(size));
    }
    if (buffer == Buffer::scratch) {
      out = {2, chunk, 0, chunk};
      return {};
    }
    const model::Place place = collective.canonical(rank, {buffer, chunk});
    const std::uint32_t chunks = collective.chunks();
    out = {static_cast<std::uint32_t>(place.buffer), place.index, place.index / chunks, place.index % chunks};
    if (std::uint64_t{out.index} + step.count > chunks) step.one_block = 0;
    return {};
  }

  template <class Where>
  Status writable(const Where& where, std::uint32_t rank, const Step& step) const {
    if (step.dst.buffer != 0) return {};
    for (std::uint32_t j = 0; j < step.count; ++j) {
      if (!program_.collective.writable(rank, {Buffer::input, step.dst.chunk + j})) {
        return Diagnostic(ErrorCode::InputOverwritten,
                          where() + " writes input chunk " + std::to_string(step.dst.chunk));
      }
    }
    return {};
  }

  // Whether a step that writes to the input, in place, writes to the output within it alone.
  bool within_output(std::uint32_t rank, const Step& step) const {
    const PlanRank& has = plan_.ranks[rank];
    const std::uint64_t first = std::uint64_t{has.alias_block} * plan_.collective.chunks();
    const std::uint64_t last = first + std::uint64_t{has.output_blocks} * plan_.collective.chunks();
    return step.dst.chunk >= first && std::uint64_t{step.dst.chunk} + step.count <= last;
  }

  template <class Where>
  Status add_waits(const Where& where, const PlanThreadblock& tb, const ir::Instruction& from) {
    if (std::uint64_t{from.dep_begin} + from.dep_count > program_.dependencies.size()) {
      return malformed(where(), "its dependencies do not exist");
    }
    const PlanRank& rank = plan_.ranks[tb.rank];
    for (const ir::Dependency& d : program_.deps(from)) {
      if (d.tb >= rank.tb_count || d.step >= plan_.threadblocks[rank.first_tb + d.tb].step_count) {
        return malformed(where(), "depends on threadblock " + std::to_string(d.tb) + " step " + std::to_string(d.step) +
                                      ", which does not exist");
      }
      const PlanThreadblock& other = plan_.threadblocks[rank.first_tb + d.tb];
      if (instructions(other)[d.step].has_dependents == 0) {
        return malformed(where(), "depends on threadblock " + std::to_string(d.tb) + " step " + std::to_string(d.step) +
                                      ", which is not marked as having dependents");
      }
      plan_.waits.push_back({d.tb, other.step_count, d.step + 1});
    }
    return {};
  }

  // Message n sent on a connection is message n received: their counts must agree, or a slot would be misread.
  Status match_transfers() const {
    for (const Connection& c : plan_.connections) {
      const std::vector<std::uint32_t> sent = transfers(c.sender_tb, &ir::OpcodeInfo::sends);
      const std::vector<std::uint32_t> received = transfers(c.receiver_tb, &ir::OpcodeInfo::receives);
      if (sent == received) continue;
      const bool known = c.sender_tb != kNoConnection;
      const PlanThreadblock& tb = plan_.threadblocks[known ? c.sender_tb : c.receiver_tb];
      const std::string connection =
          known ? name(tb.rank, tb.send_peer, tb.channel) : name(tb.recv_peer, tb.rank, tb.channel);
      return Diagnostic(ErrorCode::UnmatchedTransfer,
                        "connection " + connection + " has " + std::to_string(sent.size()) + " sends and " +
                            std::to_string(received.size()) + " receives" +
                            (sent.size() == received.size() ? " of different counts" : ""));
    }
    return {};
  }

  std::vector<std::uint32_t> transfers(std::uint32_t index, bool ir::OpcodeInfo::* takes_part) const {
    std::vector<std::uint32_t> counts;
    if (index == kNoConnection) return counts;
    for (const ir::Instruction& i : instructions(plan_.threadblocks[index])) {
      if (ir::info(i.opcode).*takes_part) counts.push_back(i.count);
    }
    return counts;
  }

  std::span<const ir::Instruction> instructions(const PlanThreadblock& tb) const {
    return program_.steps(program_.tbs(tb.rank)[tb.tb]);
  }

  static std::string name(std::uint32_t from, std::uint32_t to, std::uint32_t channel) {
    return std::to_string(from) + " -> " + std::to_string(to) + " channel " + std::to_string(channel);
  }

  const ir::Program& program_;
  Plan plan_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> by_name_;
};

}  // namespace

Result<Plan> Plan::create(const ir::Program& program) { return Planner(program).run(); }

Tiling Plan::tiling(std::uint64_t count, std::uint64_t elem_bytes, std::uint64_t slot_data) const {
  const std::uint64_t chunks = collective.chunks();
  Tiling t;
  t.chunk_elems = count / chunks + (count % chunks != 0 ? 1 : 0);
  t.tile_elems = std::min(t.chunk_elems, slot_data / max_count / elem_bytes);
  // Tiles of whole cache lines keep every tile's first element aligned as the first one is.
  const std::uint64_t line_elems = 64 / elem_bytes;
  if (t.tile_elems < t.chunk_elems && t.tile_elems > line_elems) t.tile_elems -= t.tile_elems % line_elems;
  if (t.tile_elems != 0) t.tiles = t.chunk_elems / t.tile_elems + (t.chunk_elems % t.tile_elems != 0 ? 1 : 0);
  return t;
}

std::string Plan::place(std::uint32_t threadblock, std::uint32_t step) const {
  const PlanThreadblock& tb = threadblocks[threadblock];
  std::string out =
      "rank " + std::to_string(tb.rank) + " threadblock " + std::to_string(tb.tb) + " step " + std::to_string(step);
  if (tb.first_step + step < steps.size() && step < tb.step_count) {
    out += " (" + std::string(ir::info(static_cast<ir::Opcode>(steps[tb.first_step + step].opcode)).xml) + ")";
  }
  return out;
}

}  // namespace gc3::interp
