// Calls of the v-forms: blocks whose lengths are known only when the call is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/collective.h"
#include "gc3/model/types.h"
#include "gc3/runtime/cpu/v_memory.h"

namespace gc3::comm {

inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62U;  // of a buffer, so that no sum of sizes overflows

// A call of a v-form, as this rank makes it.
struct VCall {
  model::CollectiveKind kind = model::CollectiveKind::alltoall;
  std::vector<std::uint64_t> counts = {};  // of all blocks, in elements, as model::Collective::v_count numbers them
  std::vector<std::uint8_t*> input = {};   // where each block of this rank's input begins
  std::vector<std::uint8_t*> output = {};  // and of its output
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
  std::uint32_t root = 0;
  // Several arrays in each block, which are equally many and long in all of them: the elements of each. Then `counts`
  // are equal, and `input` and `output` have for each block where each array of it begins.
  std::vector<std::uint64_t> arrays = {};
  std::optional<double> timeout_s = {};  // see Call

  cpu::VRankCall buffers() const { return {counts, input, output, type, op, arrays, timeout_s}; }
  // Apart from its time-out.
  bool is_like(const VCall& other) const {
    return std::tie(kind, type, op, root, counts, input, output, arrays) ==
           std::tie(other.kind, other.type, other.op, other.root, other.counts, other.input, other.output,
                    other.arrays);
  }
};

// What one rank knows of the counts of a call, in rows.
struct VKnown {
  model::CollectiveKind kind = model::CollectiveKind::alltoall;
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
  std::uint32_t root = 0;
  std::uint64_t row = 0;                                  // elements of a row; 0: this rank has no array to tell
  std::optional<std::vector<std::uint64_t>> input = {};   // of each block of its input
  std::optional<std::vector<std::uint64_t>> output = {};  // of each block of its output
  std::optional<std::uint64_t> room = {};                 // of its whole output, which is there already
  std::optional<double> timeout_s = {};                   // of the exchange, see Call
};

// What all of them know together.
struct VCounts {
  std::vector<std::uint64_t> counts;  // in rows
  std::uint64_t row = 1;
};

// From what all ranks say: `words` is that of each, by rank. Every rank gets the same, or the same error.
std::vector<std::uint64_t> words_of(const VKnown& known, std::uint32_t ranks);
Result<VCounts> merge(const model::Collective& collective, model::DataType type,
                      const std::vector<std::uint64_t>& words);

// The blocks of a buffer in which they follow each other.
std::vector<std::uint8_t*> consecutive(const model::Collective& collective, std::uint32_t rank, model::Buffer buffer,
                                       const std::vector<std::uint64_t>& counts, std::size_t elem_bytes, void* base);
// Whether the counts are as many as the collective has, and the data fits any memory.
Status check_counts(const model::Collective& collective, model::DataType type,
                    const std::vector<std::uint64_t>& counts);
// Whether a call is in place, or why its buffers cannot be used.
Result<bool> in_place(const model::Collective& collective, std::uint32_t rank, const VCall& call);

}  // namespace gc3::comm
