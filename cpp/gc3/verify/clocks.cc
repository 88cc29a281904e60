#include "gc3/verify/clocks.h"

#include <algorithm>

namespace gc3::verify {

void Clocks::reset(std::uint32_t rank) {
  const ir::Program& program = index_.program();
  const ir::RankProgram& r = program.ranks[rank];
  first_tb_ = r.first_tb;
  width_ = r.tb_count;
  rows_.clear();
  readers_.clear();
  free_rows_.clear();
  ended_ = kNone;
  current_.assign(width_, kNone);
  left_.clear();
  dependents_.clear();
  if (width_ == 0) return;
  const ir::Threadblock& last = program.threadblocks[first_tb_ + width_ - 1];
  first_instruction_ = program.threadblocks[first_tb_].first_instruction;
  const std::uint32_t count = last.first_instruction + last.instruction_count - first_instruction_;
  left_.assign(count, kNone);
  dependents_.assign(count, 0);
  for (std::uint32_t k = 0; k < count; ++k) {
    for (const ir::Dependency& d : program.deps(program.instructions[first_instruction_ + k])) {
      ++dependents_[program.threadblocks[first_tb_ + d.tb].first_instruction + d.step - first_instruction_];
    }
  }
}

void Clocks::enter(Step step) {
  if (full_) return;
  if (ended_ != kNone && current_[ended_] != kNone) release(current_[ended_]);
  const ir::Program& program = index_.program();
  const std::uint32_t tb = step.tb - first_tb_;
  const ir::Instruction& i = index_.instruction(step);
  for (const ir::Dependency& d : program.deps(i)) {
    const std::uint32_t awaited =
        program.threadblocks[first_tb_ + d.tb].first_instruction + d.step - first_instruction_;
    const std::uint32_t theirs = left_[awaited];
    const std::uint32_t mine = current_[tb];
    // Clocks are transitive: a step's dependencies add everything that was finished before them.
    if (d.tb != tb && (mine == kNone || known(mine, d.tb) <= d.step)) {
      const std::uint32_t row = own_row(tb);
      if (theirs != kNone) {
        std::uint32_t* to = &known(row, 0);
        const std::uint32_t* from = &known(theirs, 0);
        for (std::uint32_t t = 0; t < width_; ++t) to[t] = std::max(to[t], from[t]);
      }
      known(row, d.tb) = std::max(known(row, d.tb), d.step + 1);
    }
    if (theirs != kNone) release(theirs);
  }
  const std::uint32_t self = program.threadblocks[step.tb].first_instruction + step.step - first_instruction_;
  if (dependents_[self] > 0 && current_[tb] != kNone) {
    left_[self] = current_[tb];
    readers_[current_[tb]] += dependents_[self];
  }
  ended_ = step.step + 1 == program.threadblocks[step.tb].instruction_count ? tb : kNone;
}

// A row of `tb` that no other step will read in its present state.
std::uint32_t Clocks::own_row(std::uint32_t tb) {
  const std::uint32_t old = current_[tb];
  if (old != kNone && readers_[old] == 1) return old;
  std::uint32_t row = 0;
  if (free_rows_.empty() && rows_.size() + width_ > kRoom) {
    full_ = true;
    return 0;
  }
  if (free_rows_.empty()) {
    row = static_cast<std::uint32_t>(readers_.size());
    readers_.push_back(0);
    rows_.resize(rows_.size() + width_);
  } else {
    row = free_rows_.back();
    free_rows_.pop_back();
  }
  readers_[row] = 1;
  current_[tb] = row;
  std::uint32_t* to = &known(row, 0);
  if (old == kNone) {
    std::fill_n(to, width_, 0U);
  } else {
    std::copy_n(&known(old, 0), width_, to);
    release(old);
  }
  return row;
}

void Clocks::release(std::uint32_t row) {
  if (--readers_[row] == 0) free_rows_.push_back(row);
}

}  // namespace gc3::verify
