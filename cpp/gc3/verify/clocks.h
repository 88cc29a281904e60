// Which steps of one rank are known to be finished, per threadblock, from program order and dependencies alone.
//
// A vector clock per threadblock, advanced in schedule order. A step with dependents leaves its clock for them. Steps
// share clocks; a clock is copied only if it must change while a dependent still needs it, and freed with its last
// reader, or with the last step of its threadblock. So few exist at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gc3/verify/program.h"

namespace gc3::verify {

class Clocks {
 public:
  explicit Clocks(const ProgramIndex& index) : index_(index) {}

  // Resets for a rank: nothing has run.
  void reset(std::uint32_t rank);
  // Advances to `step`, whose predecessors by program order and dependencies must have been entered before.
  void enter(Step step);
  // More clocks were alive at a time than there is room for: nothing is known from then on.
  bool full() const { return full_; }
  // Whether `earlier` is known to be finished when `later`, the step entered last, begins. Both of the same rank.
  bool ordered(Step earlier, Step later) const {
    if (earlier.tb == later.tb) return earlier.step < later.step;
    const std::uint32_t row = current_[later.tb - first_tb_];
    return row != kNone && known(row, earlier.tb - first_tb_) > earlier.step;
  }

 private:
  std::uint32_t known(std::uint32_t row, std::uint32_t tb) const { return rows_[std::size_t{row} * width_ + tb]; }
  std::uint32_t& known(std::uint32_t row, std::uint32_t tb) { return rows_[std::size_t{row} * width_ + tb]; }
  static constexpr std::size_t kRoom = std::size_t{1} << 27U;  // of rows_

  std::uint32_t own_row(std::uint32_t tb);
  void release(std::uint32_t row);

  const ProgramIndex& index_;
  std::uint32_t first_tb_ = 0;
  std::uint32_t first_instruction_ = 0;
  std::uint32_t width_ = 0;      // threadblocks of the rank
  std::uint32_t ended_ = kNone;  // the threadblock whose last step was entered last
  bool full_ = false;

  // Rows hold, per threadblock, the number of its steps known to be finished.
  std::vector<std::uint32_t> rows_;
  std::vector<std::uint32_t> readers_;  // per row: dependents that have yet to read it, plus one if it is a current row
  std::vector<std::uint32_t> free_rows_;
  std::vector<std::uint32_t> current_;     // per threadblock: its row, or kNone while it knows nothing of others
  std::vector<std::uint32_t> left_;        // per instruction of the rank: the row it left for its dependents
  std::vector<std::uint32_t> dependents_;  // per instruction of the rank
};

}  // namespace gc3::verify
