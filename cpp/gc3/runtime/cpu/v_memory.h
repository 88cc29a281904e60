// The memory of a rank in calls of a v-form, as RankMemory is that in calls of equal blocks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/types.h"
#include "gc3/runtime/cpu/rank_memory.h"
#include "gc3/runtime/interp/v_layout.h"

namespace gc3::cpu {

// The call of one rank.
struct VRankCall {
  std::span<const std::uint64_t> counts;  // of all blocks, in elements, as model::Collective::v_count numbers them
  std::span<std::uint8_t* const>
      input;  // by block and array of this rank; in place, those of the buffer that holds both
  std::span<std::uint8_t* const> output;
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
  std::span<const std::uint64_t> arrays = {};  // of each block, in elements; empty: a block is one array
  std::optional<double> timeout_s = {};        // see Membership::enter
};

class VMemory {
 public:
  VMemory(interp::VLayout layout, const interp::Plan& plan, std::uint32_t rank)
      : layout_(std::move(layout)),
        rank_(rank),
        copies_input_(plan.ranks[rank].copies_input),
        in_place_(plan.collective.in_place()) {}

  // Whether `run` is still as bind() has made it for a call like this.
  bool is_bound(const VRankCall& call, const RankMemory& memory) const;
  // Completes `run`, whose tiles are known. `memory` gives the scratch.
  Status bind(const VRankCall& call, RankMemory& memory, interp::VRun& run);
  std::uint64_t hash() const { return hash_; }  // of the counts and arrays
  // Before and after the rank's threadblocks run.
  void copy_in() const;
  void copy_out() const;

 private:
  interp::VLayout layout_;
  std::uint32_t rank_;
  bool copies_input_;
  bool in_place_;
  std::array<Arena, 2> copies_;
  // What is bound:
  bool bound_ = false;
  std::uint64_t moves_ = 0;
  std::uint64_t hash_ = 0;
  model::DataType type_ = model::DataType::float32;
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint64_t> arrays_;
  std::vector<std::uint8_t*> input_;
  std::vector<std::uint8_t*> output_;
};

}  // namespace gc3::cpu
