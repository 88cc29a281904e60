#include "gc3/ir/addition_order.h"

#include "gc3/base/findings.h"
#include "gc3/base/mix64.h"
#include "gc3/ir/connections.h"
#include "gc3/ir/step_order.h"
#include "gc3/ir/structure.h"

namespace gc3::ir {
namespace {

using model::Buffer;
using model::Place;

}  // namespace

std::optional<std::vector<std::uint64_t>> addition_order(const Program& program) {
  Findings findings(1);
  if (!check_structure(program, 0, findings) || findings.full()) return std::nullopt;
  const ProgramIndex index(program);
  const Connections connections = match_transfers(index, findings);
  if (findings.full()) return std::nullopt;
  const StepOrder order = StepOrder::find(index, connections);
  if (order.stuck) return std::nullopt;

  const model::Collective& collective = program.collective;
  std::vector<std::uint64_t> held(index.slot_count());
  std::vector<std::uint64_t> messages(connections.chunks);
  std::vector<std::size_t> sent;
  for (const Connection& c : connections.all) sent.push_back(c.first_chunk);
  std::vector<std::size_t> received = sent;
  const auto at = [&](std::uint32_t rank, Place place) -> std::uint64_t& {
    return held[index.slots(rank).first + index.slot(rank, place.buffer, place.index)];
  };
  for (std::uint32_t r = 0; r < collective.ranks(); ++r) {
    for (std::uint32_t i = 0; i < collective.input_chunks(r); ++i) {
      at(r, collective.canonical(r, {Buffer::input, i})) = mix64((std::uint64_t{r} << 32U) + i + 1);
    }
  }
  for (const Step step : order.steps) {
    const Instruction& i = index.instruction(step);
    const OpcodeInfo& op = info(i.opcode);
    const std::uint32_t rank = index.rank_of(step.tb);
    if (i.opcode == Opcode::apply) {
      const Compute& compute = index.program().compute;
      std::uint64_t value = mix64(compute.applications[i.src_chunk].operation + 5);
      for (const Operand& o : compute.reads(i)) value = mix64(mix64(value) + at(rank, {o.buffer, o.chunk}));
      for (const Operand& o : compute.writes(i)) at(rank, {o.buffer, o.chunk}) = value = mix64(value + 4);
      continue;
    }
    for (std::uint32_t k = 0; k < i.count; ++k) {
      // The operands of a reduction in their order: what is received or in dst, then src.
      std::uint64_t value = 0;
      if (op.receives) value = messages[received[connections.receiving[step.tb]]++];
      if (op.updates_dst()) value = at(rank, {i.dst_buffer, i.dst_chunk + k});
      if (op.reads_local) {
        const std::uint64_t local = at(rank, {i.src_buffer, i.src_chunk + k});
        value = op.reduces ? mix64(mix64(value) + 3 * local + (op.receives ? 1 : 2)) : local;
      }
      if (op.writes_local) at(rank, {i.dst_buffer, i.dst_chunk + k}) = value;
      if (op.sends) messages[sent[connections.sending[step.tb]]++] = value;
    }
  }
  std::vector<std::uint64_t> found{collective.chunks()};
  for (std::uint32_t r = 0; r < collective.ranks(); ++r) {
    for (std::uint32_t i = 0; i < collective.output_chunks(r); ++i) {
      found.push_back(at(r, collective.canonical(r, {Buffer::output, i})));
    }
  }
  return found;
}

}  // namespace gc3::ir
