// Where the chunks of a rank lie in a call of a v-form, and what each step moves: from the counts of the call and from
// a table that is made once for each program (ir/blocks.h).
//
// A place is a chunk of the rank's input, output or scratch. It has room for the longest of the chunks that the program
// ever keeps there. In scratch the places follow each other. In the caller's buffers they are where the counts put
// them, unless one would be too small for a chunk that only passes through: then the rank works on a copy of that
// buffer.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/runtime/interp/plan.h"
#include "gc3/runtime/interp/v_run.h"

namespace gc3::interp {

class VLayout {
 public:
  // GC3-V012 if the program does not serve the v-form.
  static Result<VLayout> create(const ir::Program& program, const Plan& plan, std::uint32_t rank);

  // First the lengths for a call: all counts, in elements, in the order of Collective::v_count. `copies_input`: the
  // rank works on a copy of its input, whatever its lengths. What makes more bytes than memory can hold is an error.
  Status measure(std::span<const std::uint64_t> counts, std::uint64_t elem_bytes, bool copies_input);
  // The bytes that the call then needs: copies of input and output (0: none), and scratch.
  const std::array<std::uint64_t, 3>& needs() const { return needs_; }
  // And those of the caller's input and output; 0 where one lies within the other.
  const std::array<std::uint64_t, 2>& sizes() const { return sizes_; }

  // Then the addresses: of the arrays of every block of the caller's buffers, and of memory for the needs. `arrays`:
  // the bytes of each array of a block; empty: a block is one array.
  void place(std::span<std::uint8_t* const> input, std::span<std::uint8_t* const> output,
             std::span<const std::uint64_t> arrays, const std::array<std::uint8_t*, 3>& memory, bool one_tile);
  const VStep* steps() const { return steps_.data(); }
  const Extent* extents() const { return extents_.data(); }

  // What has to be copied before and after the run: `src` is the caller's, `dst` the copy's.
  std::span<const Extent> copied_in() const { return copied_in_; }
  std::span<const Extent> copied_out() const { return copied_out_; }

 private:
  // A chunk of a block: one of those that this rank ever keeps or moves.
  struct Piece {
    std::uint32_t count;  // its number
    std::uint32_t index;
  };
  struct Moved {
    std::uint32_t piece;
    std::uint32_t src;  // places
    std::uint32_t dst;
  };
  // A place: where it begins, or, in a block of several arrays, these and its first byte in the block.
  struct Place {
    std::uint8_t* at = nullptr;
    std::uint8_t* const* arrays = nullptr;
    std::uint64_t begin = 0;
  };
  // Memory without a gap.
  struct Stretch {
    std::uint8_t* at = nullptr;
    std::uint64_t bytes = ~std::uint64_t{0};
  };
  VLayout() = default;
  Stretch stretch(const Place& place, std::uint64_t offset) const;
  // Appends what is moved from one place to another; `joins`: to the extent before it, where it follows that.
  void append(std::vector<Extent>& to, const Place& src, const Place& dst, std::uint64_t bytes, bool joins) const;

  std::uint32_t chunks_ = 1;
  std::uint32_t result_begin_ = 0;  // the places of an input that are the output within it
  std::uint32_t result_end_ = 0;
  std::vector<Piece> pieces_;
  std::array<std::uint32_t, 4> first_{};  // per buffer, its first place; first_[3]: all places
  std::vector<std::uint32_t> own_;        // per place of the caller's buffers: the piece that the caller knows there
  std::vector<std::uint32_t> begin_;      // per place, and one more: what it keeps, in kept_
  std::vector<std::uint32_t> kept_;       // pieces
  std::vector<Moved> moved_;
  std::vector<VStep> entries_;  // per step: its part of moved_

  // Of the call:
  std::vector<std::uint64_t> starts_;   // per piece: its first byte in its block
  std::vector<std::uint64_t> lengths_;  // and its bytes
  std::vector<std::uint64_t> rooms_;    // per place, in bytes
  std::array<std::uint64_t, 3> needs_{};
  std::array<std::uint64_t, 2> sizes_{};
  std::vector<std::uint64_t> ends_;  // of the arrays of a block
  std::vector<Place> places_;
  std::vector<VStep> steps_;
  std::vector<Extent> extents_;
  std::vector<Extent> copied_in_;
  std::vector<Extent> copied_out_;
};

}  // namespace gc3::interp
