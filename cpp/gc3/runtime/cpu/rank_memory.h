// The buffers of the ranks for one run: the caller's buffers, scratch, and copies if the program needs them.
//
// A program that moves data between chunk positions of different length (see chunk_classes.h) runs on padded copies, in
// which all chunks have the same length and are filled with zeros. A rank that writes to parts of its input that are
// not its output runs on a copy of the input, and so does a rank whose input is multiplied by a factor. Only outputs
// are written in the caller's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cpu/arena.h"
#include "gc3/runtime/cpu/kernels.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cpu {

using interp::Call;

// A buffer of so many bytes is written past the caches: little of it would still be there when it is read.
inline constexpr std::size_t kStreamed = std::size_t{8} << 20U;

// Keeps the memory of earlier calls where it is large enough.
Status grow(Arena& arena, std::size_t bytes, const std::string& purpose);

class RankMemory {
 public:
  // For the ranks [first, first + count), which this process runs.
  RankMemory(const interp::Plan& plan, std::uint32_t first, std::uint32_t count);

  // From now on scratch is allocated by `allocate`; if that fails, it is private memory.
  using Allocate = std::function<Result<std::shared_ptr<std::uint8_t>>(std::uint64_t bytes)>;
  void take_scratch_from(Allocate allocate) { allocate_ = std::move(allocate); }
  // The same of copies.
  void take_copies_from(Allocate allocate) { allocate_copies_ = std::move(allocate); }

  // Frees scratch. There must be no later run.
  void close();

  // Prepares the regions for `call`. An aliased buffer has no region, because the plan's steps never name it.
  // `copied`: the input, the output, that are used in copies in any case.
  Status bind(const Call& call, const interp::Run& run, std::array<bool, 2> copied = {});
  // The same for other buffers of one rank, in a call that is bound and else the same. False: it takes bind().
  bool move_to(std::uint32_t rank, const void* input, void* output);
  // To be called before and after the threadblocks of the rank run: they make copies, and apply the factors of
  // premulsum.
  void copy_in(std::uint32_t rank) const {
    if (copies_any_) make_copies(rank);
  }
  void copy_out(std::uint32_t rank) const {
    if (copies_any_) return_copies(rank);
  }

  // Scratch of that size for a rank, which the next bind() may find too small or use itself.
  Result<std::uint8_t*> scratch(std::uint32_t rank, std::size_t bytes);
  // How often scratch has moved: what was bound before is void then.
  std::uint64_t moves() const { return moves_; }

  const interp::Region* regions(std::uint32_t rank) const { return regions_.data() + std::size_t{3} * (rank - first_); }

 private:
  struct Scratch {
    Arena own;
    std::shared_ptr<std::uint8_t> shared;
    std::size_t bytes = 0;
    std::uint8_t* data() const { return shared != nullptr ? shared.get() : own.data(); }
  };
  Status grow_scratch(Scratch& scratch, std::size_t bytes, const std::string& purpose);
  static Status grow_by(const Allocate& allocate, Scratch& scratch, std::size_t bytes, const std::string& purpose);
  void make_copies(std::uint32_t rank) const;
  void return_copies(std::uint32_t rank) const;
  void scale_input(std::uint32_t rank) const;
  Status make_copy(interp::Region& region, interp::Copy& copy, Scratch& has) const;

  const interp::Plan& plan_;
  std::uint32_t first_;
  std::uint32_t count_;
  std::vector<interp::Region> regions_;  // rank-major: input, output, scratch
  std::vector<Scratch> scratch_;
  Allocate allocate_;
  Allocate allocate_copies_;
  std::vector<Scratch> made_;                                // of copies, two per rank
  std::vector<interp::Copy> copies_;                         // two per rank
  bool copies_any_ = false;                                  // or multiplies by factors
  static constexpr std::size_t kFactors = 1024;              // bytes of one factor, repeated
  std::vector<std::array<std::uint8_t, kFactors>> factors_;  // per rank, where the call has them
  decltype(Kernel::reduce) multiply_ = nullptr;
  std::uint64_t moves_ = 0;
  std::size_t block_bytes_ = 0;
  std::size_t copied_block_bytes_ = 0;  // the distance of two blocks of a copy
};

}  // namespace gc3::cpu
