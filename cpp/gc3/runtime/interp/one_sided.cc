#include "gc3/runtime/interp/one_sided.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gc3/base/errors/verifier.h"
#include "gc3/ir/index.h"

namespace gc3::direct {
namespace {

// The places of an operand, by rank.
void expand(const Program& program, const ir::direct::Operand& operand, std::vector<Place>& places) {
  const auto add = [&](std::uint32_t rank) {
    const model::Place at = program.collective.canonical(rank, {operand.buffer, operand.chunk});
    places.push_back({rank, at.index, at.buffer, is_packet(operand.access)});
  };
  if (!is_multicast(operand.access)) return add(operand.owner);
  for (const std::uint32_t rank : program.groups[operand.owner].ranks) add(rank);
}

// Whether all chunks are of the output, which in place may lie within the input.
bool within_output(const model::Collective& collective, const Place& place, std::uint32_t count) {
  if (place.buffer != Buffer::input) return true;
  const std::uint32_t begin = collective.canonical(place.rank, {Buffer::output, 0}).index;
  return place.chunk >= begin &&
         std::uint64_t{place.chunk} + count <= std::uint64_t{begin} + collective.output_chunks(place.rank);
}

void find_uses(Decoded& made) {
  made.uses.resize(made.program.ranks.size());
  const auto use = [&](std::uint32_t by, std::span<const Place> places, Decoded::Use how) {
    for (const Place& place : places) {
      if (place.rank == by) continue;
      if (place.buffer == Buffer::scratch) {
        made.stores_to_scratch |= how == Decoded::Use::stores;
        continue;
      }
      Decoded::Use& most = made.uses[place.rank][place.buffer == Buffer::output ? 1 : 0];
      most = std::max(most, how);
    }
  };
  made.program.each_step([&](std::uint32_t r, std::uint32_t, std::uint32_t, std::uint32_t at) {
    const Step& step = made.steps[at];
    if (step.op != Op::move) return;
    use(r, made.sources(step), Decoded::Use::loads);
    use(r, made.targets(step), Decoded::Use::stores);
  });
}

}  // namespace

std::vector<std::uint32_t> Counters::waiters(const Program& p) {
  std::vector<std::uint32_t> ranks;
  for (const ir::direct::Channel& c : p.channels) ranks.insert(ranks.end(), 2, c.to);
  for (const ir::direct::Semaphore& s : p.semaphores) ranks.push_back(s.rank);
  for (const ir::direct::Barrier& b : p.barriers) ranks.push_back(b.rank);
  return ranks;
}

Result<Decoded> Decoded::create(const Program& program) {
  Findings findings(1);
  if (!check_structure(program, findings)) return std::move(findings.take().front());
  Decoded made;
  made.program = program;
  for (const ir::direct::RankProgram& rank : program.ranks) made.scratch_chunks.push_back(rank.scratch_chunks);
  made.copies_input.resize(program.ranks.size());
  for (const ir::direct::Step& from : program.steps) {
    Step to{from.op, false, from.count, from.first, from.sources, from.targets, from.channel};
    if (from.op == Op::move) {
      to.first = static_cast<std::uint32_t>(made.places.size());
      for (const ir::direct::Operand& operand : program.sources(from)) expand(program, operand, made.places);
      to.sources = static_cast<std::uint32_t>(made.places.size()) - to.first;
      for (const ir::direct::Operand& operand : program.targets(from)) expand(program, operand, made.places);
      to.targets = static_cast<std::uint32_t>(made.places.size()) - to.first - to.sources;
    }
    made.steps.push_back(to);
  }
  for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
    for (std::uint32_t t = 0; t < program.ranks[r].tb_count; ++t) {
      const ir::direct::Threadblock& tb = program.tbs(r)[t];
      for (std::uint32_t s = 0; s < tb.step_count; ++s) {
        Step& step = made.steps[tb.first_step + s];
        if (step.op != Op::move) continue;
        for (const Place& target : made.targets(step)) {
          if (program.collective.writable(target.rank, {target.buffer, target.chunk})) {
            if (!within_output(program.collective, target, step.count)) made.copies_input[target.rank] = true;
            continue;
          }
          return Diagnostic(ErrorCode::InputOverwritten, ir::step_name(r, t, s) + " writes to " +
                                                             ir::place_name({target.buffer, target.chunk}) +
                                                             " of rank " + std::to_string(target.rank));
        }
        for (const auto places : {made.sources(step), made.targets(step)}) {
          for (const Place& place : places) {
            if (!place.packet) continue;
            step.packets = true;
            std::uint32_t& most = made.scratch_chunks[place.rank];
            most = std::max(most, 2 * (place.chunk + step.count));
          }
        }
      }
    }
  }
  find_uses(made);
  return made;
}

interp::Plan plan_of(const Decoded& program) {
  interp::Plan plan;
  plan.collective = program.program.collective;
  for (std::uint32_t r = 0; r < plan.collective.ranks(); ++r) {
    const model::Place input = plan.collective.canonical(r, {Buffer::input, 0});
    const model::Place output = plan.collective.canonical(r, {Buffer::output, 0});
    interp::PlanRank rank;
    rank.input_blocks = plan.collective.input_blocks(r);
    rank.output_blocks = plan.collective.output_blocks(r);
    rank.input_aliased = input.buffer != Buffer::input;
    rank.output_aliased = output.buffer != Buffer::output;
    rank.alias_block = (rank.input_aliased ? input.index : output.index) / plan.collective.chunks();
    rank.copies_input = program.copies_input[r];
    plan.ranks.push_back(rank);
  }
  return plan;
}

}  // namespace gc3::direct
