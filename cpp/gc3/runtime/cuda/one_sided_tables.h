// What the kernel of device/one_sided.h reads of a program, but the threadblocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "gc3/runtime/cuda/device/launch.h"
#include "gc3/runtime/interp/one_sided.h"

namespace gc3::cuda {

struct OneSidedTables {
  explicit OneSidedTables(const direct::Decoded& program)
      : scratch_chunks(program.scratch_chunks.begin(), program.scratch_chunks.end()),
        semaphores_at(static_cast<std::uint32_t>(direct::Counters::semaphores_at(program.program))),
        barriers_at(static_cast<std::uint32_t>(direct::Counters::barriers_at(program.program))) {
    for (const direct::Step& s : program.steps) {
      const auto in_scratch = [](const direct::Place& p) { return p.buffer == model::Buffer::scratch; };
      const bool scratch = s.op == direct::Op::move && (std::ranges::any_of(program.sources(s), in_scratch) ||
                                                        std::ranges::any_of(program.targets(s), in_scratch));
      most_chunks = std::max(most_chunks, s.count);
      steps.push_back({static_cast<std::uint32_t>(s.op), s.packets ? 1U : 0U, scratch ? 1U : 0U, s.count, s.first,
                       s.sources, s.targets, s.channel != kNone ? 1U : 0U, switched(program, steps.size())});
    }
    for (const direct::Place& p : program.places) {
      places.push_back({p.rank, p.chunk, static_cast<std::uint32_t>(p.buffer), p.packet ? 1U : 0U});
    }
    for (const ir::direct::Semaphore& s : program.program.semaphores) initial.push_back(s.initial);
    for (const ir::direct::Barrier& b : program.program.barriers) parties.push_back(b.threadblocks);
  }

  static std::uint32_t switched(const direct::Decoded& of, std::size_t index) {
    const direct::Program& program = of.program;
    const ir::direct::Step& step = program.steps[index];
    if (step.op != direct::Op::move || of.steps[index].packets) return 0;
    const auto goes = [&](std::span<const ir::direct::Operand> operands, std::span<const direct::Place> places) {
      if (operands.size() != 1 || operands[0].access != ir::direct::Access::multicast) return false;
      return places.size() == program.ranks.size() && std::ranges::all_of(places, [&](const direct::Place& p) {
               return p.buffer == places[0].buffer && p.chunk == places[0].chunk &&
                      of.scratch_chunks[p.rank] == of.scratch_chunks[0];
             });
    };
    return (goes(program.sources(step), of.sources(of.steps[index])) ? kSwitchLoads : 0U) |
           (goes(program.targets(step), of.targets(of.steps[index])) ? kSwitchStores : 0U);
  }

  std::vector<OneSidedStep> steps;
  std::vector<OneSidedPlace> places;
  std::vector<std::uint32_t> initial;
  std::vector<std::uint32_t> parties;
  std::vector<std::uint64_t> scratch_chunks;
  std::uint32_t semaphores_at;
  std::uint32_t barriers_at;
  std::uint32_t most_chunks = 1;  // of a move
};

}  // namespace gc3::cuda
