#include "gc3/runtime/cuda/ordering.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace gc3::cuda {
namespace {

// One rank: the order of its steps by threadblocks and by semaphores alone.
class RankOrder {
 public:
  RankOrder(const interp::Plan& plan, std::uint32_t rank) : plan_(plan), rank_(plan.ranks[rank]) {
    clocks_.resize(rank_.tb_count);
    next_.resize(rank_.tb_count);
  }

  // Whether two accesses to a chunk, one of them a write, are unordered; also if the steps cannot be put in any order.
  bool has_conflict() {
    for (std::uint32_t t = 0; t < rank_.tb_count; ++t) clocks_[t].resize(tb(t).step_count);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t t = 0; t < rank_.tb_count; ++t) {
        while (next_[t] < tb(t).step_count && ready(t)) {
          if (!execute(t)) return true;
          moved = true;
        }
      }
    }
    for (std::uint32_t t = 0; t < rank_.tb_count; ++t) {
      if (next_[t] < tb(t).step_count) return true;
    }
    return false;
  }

 private:
  using Clock = std::vector<std::uint32_t>;  // per threadblock, steps that are known to be finished
  struct Access {
    std::uint32_t tb = 0;
    std::uint32_t step = 0;
  };
  struct Chunk {
    std::vector<Access> writes;  // the last one of each threadblock
    std::vector<Access> reads;
  };

  const interp::PlanThreadblock& tb(std::uint32_t t) const { return plan_.threadblocks[rank_.first_tb + t]; }
  const interp::Step& step(std::uint32_t t) const { return plan_.steps[tb(t).first_step + next_[t]]; }

  bool ready(std::uint32_t t) const {
    const interp::Step& s = step(t);
    for (std::uint32_t i = s.wait_begin; i < s.wait_begin + s.wait_count; ++i) {
      if (next_[plan_.waits[i].tb] < plan_.waits[i].steps) return false;
    }
    return true;
  }

  // False: it uses a chunk that another threadblock has used without order.
  bool execute(std::uint32_t t) {
    const interp::Step& s = step(t);
    const std::uint32_t at = next_[t];
    Clock clock = at == 0 ? Clock(rank_.tb_count) : clocks_[t][at - 1];
    for (std::uint32_t i = s.wait_begin; i < s.wait_begin + s.wait_count; ++i) {
      const interp::Wait& wait = plan_.waits[i];
      const Clock& other = clocks_[wait.tb][wait.steps - 1];
      for (std::size_t k = 0; k < clock.size(); ++k) clock[k] = std::max(clock[k], other[k]);
    }
    const ir::OpcodeInfo& does = ir::info(static_cast<ir::Opcode>(s.opcode));
    bool ordered = true;
    const auto after = [&](const std::vector<Access>& before) {
      for (const Access& a : before) ordered = ordered && (a.tb == t || clock[a.tb] > a.step);
    };
    const auto enter = [&](std::vector<Access>& list) {
      std::erase_if(list, [&](const Access& a) { return a.tb == t; });
      list.push_back({t, at});
    };
    for (std::uint32_t j = 0; j < s.count; ++j) {
      if (does.reads_local) {
        Chunk& chunk = chunks_[{s.src.buffer, s.src.chunk + j}];
        after(chunk.writes);
        enter(chunk.reads);
      }
      if (does.writes_local) {
        Chunk& chunk = chunks_[{s.dst.buffer, s.dst.chunk + j}];
        after(chunk.writes);
        after(chunk.reads);
        enter(chunk.writes);
      }
    }
    clock[t] = at + 1;
    clocks_[t][at] = std::move(clock);
    ++next_[t];
    return ordered;
  }

  const interp::Plan& plan_;
  const interp::PlanRank& rank_;
  std::vector<std::vector<Clock>> clocks_;  // by threadblock and step
  std::vector<std::uint32_t> next_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Chunk> chunks_;
};

// Clocks with more entries than this cost more than the fences would.
constexpr std::uint64_t kMostClockEntries = std::uint64_t{1} << 26U;

}  // namespace

bool messages_order_memory(const interp::Plan& plan) {
  for (std::uint32_t r = 0; r < plan.ranks.size(); ++r) {
    std::uint64_t steps = 0;
    for (std::uint32_t t = 0; t < plan.ranks[r].tb_count; ++t) {
      steps += plan.threadblocks[plan.ranks[r].first_tb + t].step_count;
    }
    if (steps * plan.ranks[r].tb_count > kMostClockEntries || RankOrder(plan, r).has_conflict()) return true;
  }
  return false;
}

}  // namespace gc3::cuda
