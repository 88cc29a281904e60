// The buffers of the ranks for one run: the caller's own, scratch, and padded copies where a program needs them.
//
// A program that moves data between chunk positions of different length (see chunk_classes.h) runs on copies whose
// chunks are all whole, filled up with zeros.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cpu/arena.h"
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

  // Prepares the regions for `call`. The plan's operands are canonical, so an aliased buffer gets none.
  Status bind(const Call& call, const interp::Tiling& tiling);
  // Before and after the rank's threadblocks run; nothing to do without padded copies.
  void copy_in(std::uint32_t rank) const;
  void copy_out(std::uint32_t rank) const;

  const interp::Region* regions(std::uint32_t rank) const { return regions_.data() + std::size_t{3} * (rank - first_); }
  bool regular() const { return regular_; }

 private:
  struct Padded {
    std::uint8_t* user = nullptr;
    std::uint8_t* copy = nullptr;
    std::size_t blocks = 0;
    bool result = false;  // to be copied back
  };
  struct Scratch {
    Arena own;
    std::shared_ptr<std::uint8_t> shared;
    std::size_t bytes = 0;
    std::uint8_t* data() const { return shared != nullptr ? shared.get() : own.data(); }
  };
  Status grow_scratch(Scratch& scratch, std::size_t bytes, const std::string& purpose) const;
  Status pad(interp::Region& region, Padded& padded, Arena& arena, std::uint32_t blocks, bool result);

  const interp::Plan& plan_;
  std::uint32_t first_;
  std::uint32_t count_;
  std::vector<interp::Region> regions_;  // rank-major: input, output, scratch
  std::vector<Scratch> scratch_;
  Allocate allocate_;
  std::vector<Arena> copies_;   // two per rank
  std::vector<Padded> padded_;  // two per rank
  std::size_t block_bytes_ = 0;
  std::size_t padded_block_bytes_ = 0;
  bool regular_ = true;
};

}  // namespace gc3::cpu
