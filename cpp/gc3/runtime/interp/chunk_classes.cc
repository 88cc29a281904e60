#include "gc3/runtime/interp/chunk_classes.h"

#include <numeric>

namespace gc3::interp {
namespace {

// Disjoint sets with path halving; the smaller id becomes the root, so a class is always the root of its own set.
class Sets {
 public:
  explicit Sets(std::size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), std::size_t{0}); }
  std::size_t root(std::size_t x) {
    while (parent_[x] != x) {
      parent_[x] = parent_[parent_[x]];
      x = parent_[x];
    }
    return x;
  }
  void join(std::size_t a, std::size_t b) {
    a = root(a);
    b = root(b);
    if (a < b) parent_[b] = a;
    if (b < a) parent_[a] = b;
  }

 private:
  std::vector<std::size_t> parent_;
};

const ir::OpcodeInfo& info(const Step& step) { return ir::info(static_cast<ir::Opcode>(step.opcode)); }

}  // namespace

bool moves_between_classes(const Plan& plan) {
  const std::size_t classes = plan.collective.chunks();
  if (classes == 1) return false;
  // Ids: classes, then scratch chunks of all ranks, then the chunks of all messages of all connections.
  std::size_t ids = classes;
  std::vector<std::size_t> scratch;
  for (const PlanRank& r : plan.ranks) {
    scratch.push_back(ids);
    ids += r.scratch_chunks;
  }
  std::vector<std::size_t> sent(plan.connections.size());
  for (std::size_t c = 0; c < plan.connections.size(); ++c) {
    sent[c] = ids;
    const PlanThreadblock& tb = plan.threadblocks[plan.connections[c].sender_tb];
    for (std::uint32_t s = 0; s < tb.step_count; ++s) {
      const Step& step = plan.steps[tb.first_step + s];
      if (info(step).sends) ids += step.count;
    }
  }
  std::vector<std::size_t> received = sent;
  Sets sets(ids);
  for (const PlanThreadblock& tb : plan.threadblocks) {
    const auto location = [&](const Operand& operand, std::uint32_t j) {
      if (operand.buffer == 2) return scratch[tb.rank] + operand.chunk + j;
      return (operand.index + std::size_t{j}) % classes;
    };
    for (std::uint32_t s = 0; s < tb.step_count; ++s) {
      const Step& step = plan.steps[tb.first_step + s];
      const ir::OpcodeInfo& does = info(step);
      for (std::uint32_t j = 0; j < step.count; ++j) {
        std::size_t ends[4];
        std::size_t n = 0;
        if (does.receives) ends[n++] = received[tb.recv_connection]++;
        if (does.sends) ends[n++] = sent[tb.send_connection]++;
        if (does.reads_local) ends[n++] = location(step.src, j);
        if (does.writes_local) ends[n++] = location(step.dst, j);
        for (std::size_t i = 1; i < n; ++i) sets.join(ends[0], ends[i]);
      }
    }
  }
  for (std::size_t c = 0; c < classes; ++c) {
    if (sets.root(c) != c) return true;
  }
  return false;
}

}  // namespace gc3::interp
