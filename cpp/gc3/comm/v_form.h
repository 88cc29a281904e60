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

// Whether the input has a block for each rank.
constexpr bool is_divided(model::CollectiveKind kind) {
  return kind == model::CollectiveKind::alltoall || kind == model::CollectiveKind::reducescatter ||
         kind == model::CollectiveKind::scatter;
}

// A buffer as its caller gives it: blocks one after the other in one array, or an array for each.
struct VBuffer {
  std::vector<std::uint8_t*> at = {};    // where each array begins
  std::vector<std::uint64_t> rows = {};  // of each array
  bool is_list = false;
};

// The counts that a caller gives, in rows: a list of one for each rank, or such a list for each rank.
struct VGiven {
  std::vector<std::vector<std::uint64_t>> lists = {};
  bool is_matrix = false;
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
  std::optional<std::vector<std::uint64_t>> all = {};     // of all blocks: then no rank has to ask another
};

// What all of them know together.
struct VCounts {
  std::vector<std::uint64_t> counts;  // in rows
  std::uint64_t row = 1;
};

// The counts of all blocks, for which a caller gives a matrix of an all-to-all, else a number for each rank.
Result<std::vector<std::uint64_t>> all_counts(model::CollectiveKind kind, const VGiven& given, std::uint32_t ranks);
// What `rank` knows from its arguments; null: it has no such array. `expected`: of each block of its output.
Result<VKnown> known_of(VKnown known, std::uint32_t ranks, std::uint32_t rank, const std::optional<VGiven>& given,
                        const std::optional<VGiven>& expected, const VBuffer* input, const VBuffer* output);
// Whether the counts of a rank are as many as its blocks.
Status check_known(const model::Collective& collective, std::uint32_t rank, const VKnown& known);
// The lengths of the blocks of a buffer, in whatever `counts` are.
std::vector<std::uint64_t> lengths_of(const model::Collective& collective, std::uint32_t rank, model::Buffer buffer,
                                      const std::vector<std::uint64_t>& counts);
// The counts in elements of the type that is moved; an error as of `check_counts`.
Result<std::vector<std::uint64_t>> elements_of(const model::Collective& collective, model::DataType type,
                                               const VCounts& counts);
// Completes a call on buffers of `known` that have these rows; an error if they have others.
Status complete(VCall& call, const model::Collective& collective, std::uint32_t rank, const VKnown& known,
                const VCounts& counts, const VBuffer* input, const VBuffer* output);

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
