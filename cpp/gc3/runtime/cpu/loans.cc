#include "gc3/runtime/cpu/loans.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace gc3::cpu {
namespace {

using interp::Operand;
using interp::Plan;
using interp::PlanRank;
using interp::PlanThreadblock;
using interp::Step;

// If the clocks have more entries than this, of 4 bytes, only locations that are never written are lent.
constexpr std::uint64_t kMaxEntries = std::uint64_t{1} << 22U;

const ir::OpcodeInfo& info(const Step& step) { return ir::info(static_cast<ir::Opcode>(step.opcode)); }

// Vector clocks: for each step, how many steps of every threadblock have happened before its end.
class Clocks {
 public:
  explicit Clocks(const Plan& plan)
      : plan_(plan),
        width_(plan.threadblocks.size()),
        entries_(plan.steps.size() * width_),
        sent_(plan.connections.size()),
        consumer_(plan.steps.size(), kNone),
        owner_(plan.steps.size()) {
    std::vector<std::uint32_t> next(width_);
    std::vector<std::size_t> received(plan.connections.size());
    for (std::uint32_t t = 0; t < width_; ++t) {
      for (std::uint32_t s = 0; s < plan.threadblocks[t].step_count; ++s) {
        owner_[plan.threadblocks[t].first_step + s] = t;
      }
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t t = 0; t < width_; ++t) {
        while (next[t] < plan.threadblocks[t].step_count && try_step(t, next, received)) moved = true;
      }
    }
  }

  // Whether step `a` has ended before step `b` ends, and is another one.
  bool before(std::uint32_t a, std::uint32_t b) const {
    const std::uint32_t t = owner_[a];
    return a != b && entries_[b * width_ + t] > a - plan_.threadblocks[t].first_step;
  }
  // The step that receives the message of `step`; kNone if the program does not get there.
  std::uint32_t consumer(std::uint32_t step) const { return consumer_[step]; }

 private:
  bool try_step(std::uint32_t t, std::vector<std::uint32_t>& next, std::vector<std::size_t>& received) {
    const PlanThreadblock& tb = plan_.threadblocks[t];
    const std::uint32_t index = tb.first_step + next[t];
    const Step& step = plan_.steps[index];
    const std::uint32_t first_tb = plan_.ranks[tb.rank].first_tb;
    for (std::uint32_t i = step.wait_begin; i < step.wait_begin + step.wait_count; ++i) {
      if (next[first_tb + plan_.waits[i].tb] < plan_.waits[i].steps) return false;
    }
    const bool receives = info(step).receives;
    if (receives && received[tb.recv_connection] == sent_[tb.recv_connection].size()) return false;

    if (next[t] != 0) join(index, index - 1);
    for (std::uint32_t i = step.wait_begin; i < step.wait_begin + step.wait_count; ++i) {
      join(index, plan_.threadblocks[first_tb + plan_.waits[i].tb].first_step + plan_.waits[i].steps - 1);
    }
    if (receives) {
      const std::uint32_t sender = sent_[tb.recv_connection][received[tb.recv_connection]++];
      join(index, sender);
      consumer_[sender] = index;
    }
    entries_[index * width_ + t] = ++next[t];
    if (info(step).sends) sent_[tb.send_connection].push_back(index);
    return true;
  }
  void join(std::size_t to, std::size_t from) {
    for (std::size_t t = 0; t < width_; ++t) {
      entries_[to * width_ + t] = std::max(entries_[to * width_ + t], entries_[from * width_ + t]);
    }
  }

  const Plan& plan_;
  std::size_t width_;
  std::vector<std::uint32_t> entries_;            // step-major
  std::vector<std::vector<std::uint32_t>> sent_;  // per connection, the steps
  std::vector<std::uint32_t> consumer_;           // per step
  std::vector<std::uint32_t> owner_;              // per step, its threadblock
};

}  // namespace

std::vector<Loan> steps_that_lend(const Plan& plan, std::uint32_t rank) {
  const PlanRank& own = plan.ranks[rank];
  const auto each_step = [&](const auto& visit) {
    for (std::uint32_t t = own.first_tb; t < own.first_tb + own.tb_count; ++t) {
      const PlanThreadblock& tb = plan.threadblocks[t];
      for (std::uint32_t s = tb.first_step; s < tb.first_step + tb.step_count; ++s) visit(s);
    }
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> writers;  // of (buffer, chunk)
  each_step([&](std::uint32_t s) {
    const Step& step = plan.steps[s];
    if (!info(step).writes_local) return;
    for (std::uint32_t c = 0; c < step.count; ++c) writers[{step.dst.buffer, step.dst.chunk + c}].push_back(s);
  });
  std::optional<Clocks> clocks;
  if (plan.steps.size() * plan.threadblocks.size() <= kMaxEntries) clocks.emplace(plan);
  std::vector<Loan> lends;
  each_step([&](std::uint32_t s) {
    lends.push_back(Loan::none);
    const Step& step = plan.steps[s];
    const ir::OpcodeInfo& does = info(step);
    if (!does.keeps_sent()) return;
    const Operand& lent = does.writes_local ? step.dst : step.src;
    const std::uint32_t consumer = clocks ? clocks->consumer(s) : kNone;
    bool safe = true;
    for (std::uint32_t c = 0; c < step.count && safe; ++c) {
      const auto found = writers.find({lent.buffer, lent.chunk + c});
      if (found == writers.end()) continue;
      safe = std::ranges::all_of(found->second, [&](std::uint32_t w) {
        if (w == s) return true;
        return clocks && consumer != kNone && (clocks->before(w, s) || clocks->before(consumer, w));
      });
    }
    if (!safe) return;
    const bool moves =
        consumer != kNone && !info(plan.steps[consumer]).sends && !info(plan.steps[consumer]).reads_local;
    lends.back() = moves ? Loan::moved : Loan::combined;
  });
  return lends;
}

}  // namespace gc3::cpu
