#include "gc3/compiler/passes/window.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "gc3/base/interrupt.h"
#include "gc3/compiler/passes/number_threadblocks.h"

namespace gc3::compiler {
namespace {

// The windows of all ranks: that of each instruction, and how many each rank has.
struct Windows {
  std::vector<std::uint32_t> of;
  std::vector<std::uint32_t> count;
};

Windows cut(const ir::Program& program, const Threadblocks& threadblocks, const Order& order, std::uint32_t window) {
  struct Open {
    std::uint32_t number = 0;
    std::uint32_t sends = 0;
    std::uint32_t receives = 0;
  };
  std::vector<Open> open(program.ranks.size());
  std::vector<std::uint32_t> done(program.threadblocks.size(), 0);
  Windows windows{std::vector<std::uint32_t>(program.instructions.size()), {}};
  for (const std::uint32_t node : order.nodes) {
    const std::uint32_t block = order.block_of[node];
    const std::uint32_t at = program.threadblocks[block].first_instruction + done[block]++;
    const ir::OpcodeInfo& does = ir::info(program.instructions[at].opcode);
    Open& now = open[threadblocks.blocks[block].rank];
    if ((does.sends && now.sends == window) || (does.receives && now.receives == window)) now = {now.number + 1, 0, 0};
    now.sends += std::uint32_t{does.sends};
    now.receives += std::uint32_t{does.receives};
    windows.of[at] = now.number;
  }
  for (const Open& last : open) windows.count.push_back(last.number + 1);
  return windows;
}

class Rebuild {
 public:
  Rebuild(const ir::Program& program, const Windows& windows) : old_(program), windows_(windows), made_(program) {
    made_.threadblocks.clear();
    made_.instructions.clear();
    made_.dependencies.clear();
    made_.source.line_of.clear();
    made_.switched.clear();
  }

  ir::Program run() {
    Breath breathe;
    for (std::uint32_t r = 0; r < old_.ranks.size(); ++r) {
      breathe();
      rank(r);
    }
    return std::move(made_);
  }

 private:
  void rank(std::uint32_t r) {
    const ir::RankProgram& before = old_.ranks[r];
    const std::uint32_t waits = before.tb_count == 0 ? 0 : windows_.count[r] - 1;
    last_.assign(waits, {});
    made_.ranks[r].first_tb = static_cast<std::uint32_t>(made_.threadblocks.size());
    made_.ranks[r].tb_count = before.tb_count + std::uint32_t{waits != 0};
    for (std::uint32_t t = 0; t < before.tb_count; ++t) threadblock(before, t, waits);
    if (waits == 0) return;
    begin({});
    for (std::uint32_t w = 0; w < waits; ++w) {
      ir::Instruction nop;
      nop.has_dependents = 1;
      add(nop, last_[w], kNone, {});
    }
  }

  void threadblock(const ir::RankProgram& rank, std::uint32_t t, std::uint32_t waits) {
    const ir::Threadblock& tb = old_.threadblocks[rank.first_tb + t];
    begin(tb);
    std::uint32_t known = 0;  // the windows that this threadblock knows to be complete
    for (std::uint32_t step = 0; step < tb.instruction_count; ++step) {
      const std::uint32_t at = tb.first_instruction + step;
      const std::uint32_t window = windows_.of[at];
      ir::Instruction instruction = old_.instructions[at];
      const auto own = old_.deps(instruction);
      deps_.assign(own.begin(), own.end());
      if (window > known) deps_.push_back({rank.tb_count, window - 1});
      known = window;
      const bool ends = step + 1 == tb.instruction_count || windows_.of[at + 1] != window;
      if (ends && window < waits) {
        last_[window].push_back({t, step});
        instruction.has_dependents = 1;
      }
      add(instruction, deps_, old_.source.known() ? old_.source.line_of[at] : kNone,
          old_.switched.empty() ? ir::Switched() : old_.switched[at]);
    }
  }

  void begin(ir::Threadblock tb) {
    tb.first_instruction = static_cast<std::uint32_t>(made_.instructions.size());
    tb.instruction_count = 0;
    made_.threadblocks.push_back(tb);
  }

  void add(ir::Instruction instruction, const std::vector<ir::Dependency>& deps, std::uint32_t line,
           ir::Switched groups) {
    instruction.dep_begin = static_cast<std::uint32_t>(made_.dependencies.size());
    instruction.dep_count = static_cast<std::uint32_t>(deps.size());
    made_.dependencies.insert(made_.dependencies.end(), deps.begin(), deps.end());
    made_.instructions.push_back(instruction);
    if (old_.source.known()) made_.source.line_of.push_back(line);
    if (!old_.switched.empty()) made_.switched.push_back(groups);
    ++made_.threadblocks.back().instruction_count;
  }

  const ir::Program& old_;
  const Windows& windows_;
  ir::Program made_;
  std::vector<ir::Dependency> deps_;
  std::vector<std::vector<ir::Dependency>> last_;  // of each window but the last: the last step of each threadblock
};

}  // namespace

Threadblocks in_order_of_use(const Trace& trace, const InstructionDag& dag, Threadblocks threadblocks) {
  if (is_manual(trace)) return threadblocks;
  std::vector<std::uint32_t> first(threadblocks.blocks.size(), kNone);
  for (std::uint32_t n = 0; n < dag.nodes.size(); ++n) {
    const std::uint32_t block = dag.exists(n) ? threadblocks.block_of[n] : kNone;
    if (block != kNone) first[block] = std::min(first[block], n);
  }
  std::vector<std::uint32_t> sorted(first.size());
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::ranges::sort(sorted, {}, [&](std::uint32_t b) { return std::tuple(threadblocks.blocks[b].rank, first[b], b); });
  std::vector<std::uint32_t> number(sorted.size());
  std::vector<Block> blocks;
  for (const std::uint32_t b : sorted) {
    number[b] = static_cast<std::uint32_t>(blocks.size());
    blocks.push_back(threadblocks.blocks[b]);
  }
  threadblocks.blocks = std::move(blocks);
  for (std::uint32_t& block : threadblocks.block_of) {
    if (block != kNone) block = number[block];
  }
  return threadblocks;
}

ir::Program wait_for_windows(const ir::Program& program, const Threadblocks& threadblocks, const Order& order,
                             std::uint32_t window) {
  const Windows windows = cut(program, threadblocks, order, window);
  return Rebuild(program, windows).run();
}

}  // namespace gc3::compiler
