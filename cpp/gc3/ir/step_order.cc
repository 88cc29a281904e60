#include "gc3/ir/step_order.h"

#include "gc3/base/interrupt.h"

namespace gc3::ir {

StepOrder StepOrder::find(const ProgramIndex& index, const Connections& connections) {
  const Program& program = index.program();
  const std::vector<Threadblock>& tbs = program.threadblocks;
  std::vector<std::uint32_t> next(tbs.size());                  // per threadblock: its next step
  std::vector<std::vector<std::uint32_t>> waiters(tbs.size());  // per threadblock: those that wait for it
  std::vector<std::size_t> under_way(connections.all.size());   // per connection: chunks sent and not received
  // The threadblock that has to go on before the next step of `t` can run, or kNone.
  const auto waits_for = [&](std::uint32_t t) {
    const Instruction& i = index.instruction({t, next[t]});
    for (const Dependency& d : program.deps(i)) {
      const Step awaited = index.awaited(index.rank_of(t), d);
      if (next[awaited.tb] <= awaited.step) return awaited.tb;
    }
    if (!info(i.opcode).receives) return kNone;
    const std::uint32_t c = connections.receiving[t];
    return under_way[c] == 0 ? connections.all[c].send_tb : kNone;
  };
  StepOrder order;
  order.steps.reserve(program.instructions.size());
  std::vector<std::uint32_t> ready;
  for (std::uint32_t t = 0; t < tbs.size(); ++t) ready.push_back(t);
  Breath breathe;
  while (!ready.empty()) {
    const std::uint32_t t = ready.back();
    ready.pop_back();
    const std::uint32_t before = next[t];
    std::uint32_t awaited = kNone;
    while (next[t] < tbs[t].instruction_count && (awaited = waits_for(t)) == kNone) {
      breathe();
      const Instruction& i = index.instruction({t, next[t]});
      if (info(i.opcode).receives) under_way[connections.receiving[t]] -= i.count;
      if (info(i.opcode).sends) under_way[connections.sending[t]] += i.count;
      order.steps.push_back({t, next[t]++});
    }
    if (awaited != kNone) waiters[awaited].push_back(t);
    if (next[t] == before) continue;  // threadblocks that wait for each other would be looked at for ever
    ready.insert(ready.end(), waiters[t].begin(), waiters[t].end());
    waiters[t].clear();
  }
  for (std::uint32_t t = 0; t < tbs.size() && !order.stuck; ++t) {
    if (next[t] < tbs[t].instruction_count) order.stuck = Step{t, next[t]};
  }
  return order;
}

}  // namespace gc3::ir
