// What each threadblock of one rank knows to be finished on that rank, through program order and dependencies alone.
//
// A vector clock per threadblock, advanced in schedule order. A step that others wait for leaves its clock behind for
// them; clocks are shared between steps, copied only when one that is still awaited must change, and freed with their
// last reader, so few exist at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gc3/verify/program.h"

namespace gc3::verify {

class Clocks {
 public:
  explicit Clocks(const ProgramIndex& index) : index_(index) {}

  // Starts over for a rank: nothing has run.
  void reset(std::uint32_t rank);
  // Advances to `step`, whose predecessors by program order and dependencies have been entered before.
  void enter(Step step);
  // Whether `earlier` is known to be finished when `later`, the step entered last, begins. Same rank.
  bool ordered(Step earlier, Step later) const {
    if (earlier.tb == later.tb) return earlier.step < later.step;
    const std::uint32_t row = current_[later.tb - first_tb_];
    return row != kNone && known(row, earlier.tb - first_tb_) > earlier.step;
  }

 private:
  std::uint32_t known(std::uint32_t row, std::uint32_t tb) const { return rows_[std::size_t{row} * width_ + tb]; }
  std::uint32_t& known(std::uint32_t row, std::uint32_t tb) { return rows_[std::size_t{row} * width_ + tb]; }
  std::uint32_t own_row(std::uint32_t tb);
  void release(std::uint32_t row);

  const ProgramIndex& index_;
  std::uint32_t first_tb_ = 0;
  std::uint32_t first_instruction_ = 0;
  std::uint32_t width_ = 0;  // threadblocks of the rank

  // Rows hold, per threadblock, the number of its steps known to be finished.
  std::vector<std::uint32_t> rows_;
  std::vector<std::uint32_t> readers_;  // per row: dependents that have yet to read it, plus one if it is current
  std::vector<std::uint32_t> free_rows_;
  std::vector<std::uint32_t> current_;     // per threadblock: its row, or kNone while it knows nothing of others
  std::vector<std::uint32_t> left_;        // per instruction of the rank: the row it left for its dependents
  std::vector<std::uint32_t> dependents_;  // per instruction of the rank
};

}  // namespace gc3::verify
