// The buffers of the ranks for one run: the caller's own, scratch, and copies where a program needs them.
//
// A program that moves data between chunk positions of different length (see chunk_classes.h) runs on padded copies
// whose chunks are all whole, filled up with zeros. A rank that writes to its input beside its output runs on a copy of
// the input, as does one whose input is multiplied by a factor. Of the caller's memory only outputs are written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cpu/arena.h"
#include "gc3/runtime/cpu/kernels.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cpu {

using interp::Call;

class RankMemory {
 public:
  // Of the ranks [first, first + count), those that this process runs.
  RankMemory(const interp::Plan& plan, std::uint32_t first, std::uint32_t count);

  // Where scratch comes from henceforth, as long as that has some; private memory otherwise.
  using Allocate = std::function<Result<std::shared_ptr<std::uint8_t>>(std::uint64_t bytes)>;
  void take_scratch_from(Allocate allocate) { allocate_ = std::move(allocate); }

  // Gives scratch back; nothing runs any more.
  void close();

  // Prepares the regions for `call`. The plan's operands are canonical, so an aliased buffer gets none.
  Status bind(const Call& call, const interp::Run& run);
  // Before and after the rank's threadblocks run: copies, and the factors of premulsum.
  void copy_in(std::uint32_t rank) const;
  void copy_out(std::uint32_t rank) const;

  const interp::Region* regions(std::uint32_t rank) const { return regions_.data() + std::size_t{3} * (rank - first_); }

 private:
  struct Scratch {
    Arena own;
    std::shared_ptr<std::uint8_t> shared;
    std::size_t bytes = 0;
    std::uint8_t* data() const { return shared != nullptr ? shared.get() : own.data(); }
  };
  Status grow_scratch(Scratch& scratch, std::size_t bytes, const std::string& purpose) const;
  void scale_input(std::uint32_t rank) const;
  Status make_copy(interp::Region& region, interp::Copy& copy, Arena& arena) const;

  const interp::Plan& plan_;
  std::uint32_t first_;
  std::uint32_t count_;
  std::vector<interp::Region> regions_;  // rank-major: input, output, scratch
  std::vector<Scratch> scratch_;
  Allocate allocate_;
  std::vector<Arena> arenas_;                                // of copies, two per rank
  std::vector<interp::Copy> copies_;                         // two per rank
  static constexpr std::size_t kFactors = 1024;              // bytes of one factor, repeated
  std::vector<std::array<std::uint8_t, kFactors>> factors_;  // per rank, where the call has them
  decltype(Kernel::reduce) multiply_ = nullptr;
  std::size_t block_bytes_ = 0;
  std::size_t copied_block_bytes_ = 0;  // from block to block of a copy
};

}  // namespace gc3::cpu
