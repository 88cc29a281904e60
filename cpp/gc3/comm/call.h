// A call of a collective, as a rank makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gc3/model/collective.h"
#include "gc3/model/types.h"
#include "gc3/runtime/cpu/process_program.h"

namespace gc3::comm {

using model::CollectiveKind;

// The buffers that a collective needs on one rank.
struct Signature {
  std::uint32_t input_blocks = 0;
  std::uint32_t output_blocks = 0;
  std::uint32_t largest_blocks = 0;                    // of the largest buffer of any rank
  std::optional<model::Collective::Alias> alias = {};  // none: the collective cannot be in place
};

// Those on `rank`, in place or not.
std::optional<Signature> signature_of(CollectiveKind kind, std::uint32_t ranks, std::uint32_t rank, std::uint32_t root);
// S of a call whose largest buffer has so many blocks.
Result<std::size_t> bytes_of(std::size_t blocks, std::size_t count, model::DataType type);

// A call of a built-in collective by this rank. `count`: elements per block, see model/collective.h.
struct Call {
  CollectiveKind kind = CollectiveKind::allreduce;
  const void* input = nullptr;  // null if this rank has no such buffer in the collective
  void* output = nullptr;
  std::size_t count = 0;
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
  std::uint32_t root = 0;
  model::Factor factor = {};  // of premulsum
  // Where each block of a buffer is; empty: they follow each other.
  std::vector<std::uint8_t*> input_at = {};
  std::vector<std::uint8_t*> output_at = {};
  std::optional<double> timeout_s = {};  // without progress; none: that of the communicator

  bool has_lists() const { return !input_at.empty() || !output_at.empty(); }
  cpu::RankCall buffers() const { return {input, output, count, type, op, factor, timeout_s}; }
};

}  // namespace gc3::comm
