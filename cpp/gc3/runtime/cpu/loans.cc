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

// If the clocks had more entries than this, of 4 bytes, only locations that are never written are lent.
constexpr std::uint64_t kMaxEntries = std::uint64_t{1} << 22U;

const ir::OpcodeInfo& info(const Step& step) { return ir::info(static_cast<ir::Opcode>(step.opcode)); }

// By send step of a rank, the step that receives its message: the k-th receive of a connection takes its k-th send.
// kNone for all other steps, and for a message that nobody receives.
std::vector<std::uint32_t> receivers_of(const Plan& plan, const PlanRank& own) {
  std::vector<std::uint32_t> receivers;
  for (std::uint32_t t = own.first_tb; t < own.first_tb + own.tb_count; ++t) {
    const PlanThreadblock& tb = plan.threadblocks[t];
    std::uint32_t next = 0;  // step to look at, of those that may receive
    std::uint32_t end = 0;
    if (tb.send_connection != kNone) {
      const PlanThreadblock* receiver = &plan.threadblocks[plan.connections[tb.send_connection].receiver_tb];
      if (plan.only != ir::kNoRank) receiver = &plan.threadblocks[own.first_tb + receiver->tb];  // that has the same
      const PlanThreadblock& peer = *receiver;
      next = peer.first_step;
      end = peer.first_step + peer.step_count;
    }
    for (std::uint32_t s = tb.first_step; s < tb.first_step + tb.step_count; ++s) {
      receivers.push_back(kNone);
      if (!info(plan.steps[s]).sends) continue;
      while (next != end && !info(plan.steps[next]).receives) ++next;
      if (next != end) receivers.back() = next++;
    }
  }
  return receivers;
}

// Vector clocks: for each step of the program, how many steps of some threadblocks have happened before its end. Those
// are the threadblocks of one rank, and those that receive from it.
class Clocks {
 public:
  Clocks(const Plan& plan, const PlanRank& own)
      : plan_(plan), column_(plan.threadblocks.size(), kNone), owner_(plan.steps.size()) {
    const auto add = [&](std::uint32_t tb) {
      if (column_[tb] == kNone) column_[tb] = width_++;
    };
    for (std::uint32_t t = own.first_tb; t < own.first_tb + own.tb_count; ++t) {
      add(t);
      const std::uint32_t connection = plan.threadblocks[t].send_connection;
      if (connection != kNone) add(plan.connections[connection].receiver_tb);
    }
    for (std::uint32_t t = 0; t < plan.threadblocks.size(); ++t) {
      for (std::uint32_t s = 0; s < plan.threadblocks[t].step_count; ++s) {
        owner_[plan.threadblocks[t].first_step + s] = t;
      }
    }
    if (plan.steps.size() * width_ <= kMaxEntries) fill();
  }

  // Whether step `a`, of one of those threadblocks, must have ended before step `b` ends, and is another one. Of a
  // program that is too large it is not known.
  bool before(std::uint32_t a, std::uint32_t b) const {
    const std::uint32_t t = owner_[a];
    return a != b && !entries_.empty() && entry(b)[column_[t]] > a - plan_.threadblocks[t].first_step;
  }

 private:
  void fill() {
    entries_.resize(plan_.steps.size() * width_);
    std::vector<std::uint32_t> next(plan_.threadblocks.size());
    std::vector<std::size_t> received(plan_.connections.size());
    std::vector<std::vector<std::uint32_t>> sent(plan_.connections.size());  // the steps
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t t = 0; t < next.size(); ++t) {
        while (next[t] < plan_.threadblocks[t].step_count && try_step(t, next, sent, received)) moved = true;
      }
    }
  }
  bool try_step(std::uint32_t t, std::vector<std::uint32_t>& next, std::vector<std::vector<std::uint32_t>>& sent,
                std::vector<std::size_t>& received) {
    const PlanThreadblock& tb = plan_.threadblocks[t];
    const std::uint32_t index = tb.first_step + next[t];
    const Step& step = plan_.steps[index];
    const std::uint32_t first_tb = plan_.ranks[tb.rank].first_tb;
    for (std::uint32_t i = step.wait_begin; i < step.wait_begin + step.wait_count; ++i) {
      if (next[first_tb + plan_.waits[i].tb] < plan_.waits[i].steps) return false;
    }
    const bool receives = info(step).receives && plan_.only == ir::kNoRank;  // else only the rank's own order is known
    if (receives && received[tb.recv_connection] == sent[tb.recv_connection].size()) return false;

    if (next[t] != 0) join(index, index - 1);
    for (std::uint32_t i = step.wait_begin; i < step.wait_begin + step.wait_count; ++i) {
      join(index, plan_.threadblocks[first_tb + plan_.waits[i].tb].first_step + plan_.waits[i].steps - 1);
    }
    if (receives) join(index, sent[tb.recv_connection][received[tb.recv_connection]++]);
    ++next[t];
    if (column_[t] != kNone) entry(index)[column_[t]] = next[t];
    if (info(step).sends) sent[tb.send_connection].push_back(index);
    return true;
  }
  void join(std::uint32_t to, std::uint32_t from) {
    for (std::uint32_t c = 0; c < width_; ++c) entry(to)[c] = std::max(entry(to)[c], entry(from)[c]);
  }
  std::uint32_t* entry(std::uint32_t step) { return entries_.data() + std::size_t{step} * width_; }
  const std::uint32_t* entry(std::uint32_t step) const { return entries_.data() + std::size_t{step} * width_; }

  const Plan& plan_;
  std::uint32_t width_ = 0;
  std::vector<std::uint32_t> column_;   // by threadblock; kNone: without
  std::vector<std::uint32_t> entries_;  // step-major
  std::vector<std::uint32_t> owner_;    // per step, its threadblock
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
    if (step.opcode == interp::Op::apply) {
      for (const ir::Operand& o : plan.compute.writes(plan.compute.applications[step.src.chunk])) {
        writers[{static_cast<std::uint32_t>(o.buffer), o.chunk}].push_back(s);
      }
    }
    if (!info(step).writes_local) return;
    for (std::uint32_t c = 0; c < step.count; ++c) writers[{step.dst.buffer, step.dst.chunk + c}].push_back(s);
  });
  const std::vector<std::uint32_t> receivers = receivers_of(plan, own);
  std::optional<Clocks> clocks;  // most programs that lend need none: they write nothing of what they lend
  std::vector<Loan> lends;
  each_step([&](std::uint32_t s) {
    const std::uint32_t consumer = receivers[lends.size()];
    lends.push_back(Loan::none);
    const Step& step = plan.steps[s];
    const ir::OpcodeInfo& does = info(step);
    if (!does.keeps_sent()) return;
    const Operand& lent = does.writes_local ? step.dst : step.src;
    const auto is_ordered = [&](std::uint32_t w) {
      if (w == s) return true;
      if (consumer == kNone) return false;
      if (!clocks) clocks.emplace(plan, own);
      return clocks->before(w, s) || (plan.only == ir::kNoRank && clocks->before(consumer, w));
    };
    bool safe = true;
    for (std::uint32_t c = 0; c < step.count && safe; ++c) {
      const auto found = writers.find({lent.buffer, lent.chunk + c});
      safe = found == writers.end() || std::ranges::all_of(found->second, is_ordered);
    }
    if (!safe) return;
    const bool moves =
        consumer != kNone && !info(plan.steps[consumer]).sends && !info(plan.steps[consumer]).reads_local;
    lends.back() = moves ? Loan::moved : Loan::combined;
  });
  return lends;
}

}  // namespace gc3::cpu
