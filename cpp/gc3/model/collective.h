// A collective: how many chunks each rank's buffers hold, how they alias in place, and what must end up where.
//
// Chunks and elements. A call names a `count` of elements per *block*, as NCCL does (sendcount of an all-gather,
// recvcount of a reduce-scatter, elements per peer of an all-to-all, the whole buffer otherwise). A buffer is a
// sequence of blocks. Every block is cut into `chunks` chunks of ceil(count / chunks) elements; the last ones may be
// short or empty. Chunk i of a buffer is chunk i % chunks of block i / chunks.
//
// A call of the v-form of a collective names a count for each block instead. Blocks that hold the same data, on
// whatever ranks and in whatever buffers, have one count: rank r's count of an all-gather, what rank s sends to rank d
// in an all-to-all. Every block is cut by the same rule.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gc3/base/ids.h"
#include "gc3/base/result.h"
#include "gc3/model/types.h"

namespace gc3::model {

enum class CollectiveKind : std::uint8_t {
  allreduce,
  allgather,
  reducescatter,
  alltoall,
  broadcast,
  reduce,
  gather,
  scatter,
  alltonext,
  custom
};
inline constexpr std::array<std::string_view, 10> kCollectiveNames = {
    "allreduce", "allgather", "reducescatter", "alltoall",  "broadcast",
    "reduce",    "gather",    "scatter",       "alltonext", "custom"};
constexpr std::string_view name_of(CollectiveKind k) { return kCollectiveNames[static_cast<std::size_t>(k)]; }
// Whether one rank, the root, has a special role.
constexpr bool is_rooted(CollectiveKind k) {
  return k == CollectiveKind::broadcast || k == CollectiveKind::reduce || k == CollectiveKind::gather ||
         k == CollectiveKind::scatter;
}
// The collective spelled `name`; GC3-M001 if there is none.
Result<CollectiveKind> parse_collective(std::string_view name);

// Bounds on a collective, so that a few bytes of a damaged file cannot ask for gigabytes.
inline constexpr std::uint32_t kMaxBufferChunks = 1U << 22U;  // in one buffer of one rank
inline constexpr std::uint64_t kMaxTotalChunks = 1U << 25U;   // in all ranks together, counting a rank's larger buffer
inline constexpr std::uint32_t kMaxTerms = 1U << 31U;         // in the whole postcondition of a custom collective

// An input chunk: where its data is before the collective runs.
struct InputChunk {
  std::uint32_t rank;
  std::uint32_t index;
  auto operator<=>(const InputChunk&) const = default;
};

// As the rank of a term of a postcondition: the result of call `index` of its collective.
inline constexpr std::uint32_t kComputed = kNone;

// The required value of an output chunk: a sum of input chunks, or of results of compute operations; each counts as
// often as it is named. Empty: any value. Either the listed terms of a custom collective, or one chunk index of several
// ranks.
struct Demand {
  std::span<const InputChunk> listed{};  // before splitting
  std::uint32_t split = 1;
  std::uint32_t part = 0;
  InputChunk first{0, 0};   // if no terms are listed: this chunk
  std::uint32_t ranks = 0;  // of this many ranks, from first.rank on

  std::uint32_t size() const { return listed.empty() ? ranks : static_cast<std::uint32_t>(listed.size()); }
  InputChunk operator[](std::uint32_t k) const {
    if (listed.empty()) return {first.rank + k, first.index};
    if (listed[k].rank == kComputed) return listed[k];  // of a collective that is not split
    return {listed[k].rank, listed[k].index * split + part};
  }
};

// A place in memory: chunk `index` of a buffer of a known rank.
struct Place {
  Buffer buffer;
  std::uint32_t index;
  bool operator==(const Place&) const = default;
};

// What is declared of a compute operation. A proof may assume it: docs/language.md has the rules. Each is of operands,
// by bit; all bits: of all operands, however many.
struct Properties {
  std::uint32_t linear = 0;       // in each of them: what it makes of a sum is the sum of what it makes of the terms
  std::uint32_t rowwise = 0;      // of blocks of rows of all of them, it makes the same rows of its result
  std::uint32_t elementwise = 0;  // the same of any block of elements
  bool operator==(const Properties&) const = default;
};
inline constexpr std::array<std::pair<std::string_view, std::uint32_t Properties::*>, 3> kProperties = {{
    {"linear", &Properties::linear},
    {"rowwise", &Properties::rowwise},
    {"elementwise", &Properties::elementwise},
}};
inline constexpr std::uint32_t kPropertyOperands = 32;
constexpr bool covers(std::uint32_t operands, std::size_t operand) {
  return operands == UINT32_MAX || (operand < kPropertyOperands && (operands >> operand & 1U) != 0);
}
// "linear in operand 0 and rowwise in operands 0, 1"; empty: nothing is declared.
std::string to_string(const Properties& properties);

// A value that a compute operation makes: result `result` of an operation of these arguments, each a sum of terms.
struct TermCall {
  std::uint32_t operation = 0;  // in CustomCollective::operations
  std::uint32_t result = 0;
  std::vector<std::vector<InputChunk>> arguments;  // of inputs and earlier calls
  // Of a part of what it makes of whole tensors: how many chunks each operand has, which are arguments that follow each
  // other; which part; and whether all are cut between columns or between rows. Empty: each argument is an operand.
  std::vector<std::uint32_t> pieces = {};
  std::uint32_t part = 0;
  bool columns = false;
  bool operator==(const TermCall&) const = default;
};
// The arguments of which the operation makes this value, if its properties say that a part depends on no others. None:
// they do not.
std::optional<std::vector<std::vector<InputChunk>>> part_arguments(const TermCall& call, const Properties& properties);

// Consecutive chunks of the input or output of every rank, under a name. Those of a buffer follow each other.
struct Tensor {
  std::string name;
  Buffer buffer = Buffer::input;
  std::vector<std::uint32_t> chunks;  // per rank
  std::uint32_t length = 0;           // the number of the length of its chunks; see ir::Compute
  bool operator==(const Tensor&) const = default;
};

// A collective given as data. All counts are in chunks before any splitting.
struct CustomCollective {
  std::string name;
  std::vector<std::uint32_t> input_chunks;   // per rank, a multiple of `chunks` of the collective
  std::vector<std::uint32_t> output_chunks;  // per rank, likewise
  // In place: output 0 of the rank is input `offset` (offset >= 0), or input 0 is output -offset-1 (offset < 0).
  std::vector<std::optional<std::int64_t>> alias;  // per rank; nullopt: the rank's buffers never alias
  // Postcondition, rank-major over output chunks: chunk i must hold terms[begin[i] .. begin[i+1]); no terms: any value.
  std::vector<std::uint64_t> begin;
  std::vector<InputChunk> terms;
  // Of programs that compute; without tensors, there are none of these.
  std::vector<Tensor> tensors = {};  // the inputs before the outputs
  std::vector<std::string> operations = {};
  std::vector<Properties> properties = {};  // per operation; none: nothing is declared
  std::vector<TermCall> calls = {};
  bool operator==(const CustomCollective&) const = default;
};

class Collective {
 public:
  Collective() = default;
  // `chunks`: chunks per block. Only broadcast, reduce, gather and scatter use `root`.
  static Result<Collective> builtin(CollectiveKind kind, std::uint32_t ranks, std::uint32_t chunks, std::uint32_t root,
                                    bool in_place);
  static Result<Collective> custom(CustomCollective data, std::uint32_t ranks, std::uint32_t chunks, bool in_place);

  CollectiveKind kind() const { return kind_; }
  std::string_view name() const { return custom_ ? std::string_view(custom_->name) : name_of(kind_); }
  std::uint32_t ranks() const { return ranks_; }
  std::uint32_t chunks() const { return chunks_; }  // per block, after splitting
  std::uint32_t root() const { return root_; }
  bool in_place() const { return in_place_; }
  // The number of parts into which every chunk of the algorithm's own signature has been cut (instances, parallelize).
  std::uint32_t split() const { return split_; }
  const CustomCollective* custom_data() const { return custom_.get(); }
  // Of a custom one: the SHA-256, in hexadecimal digits, of all that a caller relies on but its name: buffers, how they
  // alias, and the postcondition, before any splitting. Two of equal conditions demand the same. Else "".
  std::string condition() const;
  bool has_tensors() const { return custom_ != nullptr && !custom_->tensors.empty(); }
  // Whether an operation is declared linear: then the laws of its reduction are those of sums.
  bool has_linear() const;
  // The same if nothing is declared of its operations.
  Collective without_properties() const;
  // The same with other numbers of lengths, one for each tensor.
  Collective with_lengths(const std::vector<std::uint32_t>& lengths) const;

  Collective with_in_place(bool in_place) const;
  // Whether the result of split_chunks(parts) stays within kMaxBufferChunks and kMaxTotalChunks.
  bool can_split(std::uint32_t parts) const;
  // The same collective with every chunk cut into `parts`; can_split(parts) holds.
  Collective split_chunks(std::uint32_t parts) const;

  std::uint32_t input_chunks(std::uint32_t rank) const;
  std::uint32_t output_chunks(std::uint32_t rank) const;
  std::uint32_t input_blocks(std::uint32_t rank) const { return input_chunks(rank) / chunks_; }
  std::uint32_t output_blocks(std::uint32_t rank) const { return output_chunks(rank) / chunks_; }

  // How many counts a call of the v-form has; 0: the collective has none.
  std::uint32_t v_counts() const;
  // The same, and 1 where all blocks are equally long.
  std::uint32_t counts() const { return v_counts() == 0 ? 1 : v_counts(); }
  // Which of them is the length of block `block` of a buffer of `rank`; of a custom collective with tensors, the number
  // of the length of that chunk.
  std::uint32_t v_count(std::uint32_t rank, Buffer buffer, std::uint32_t block) const;

  // In place, the smaller buffer of a rank lies inside the larger one. None: the rank's buffers never alias.
  struct Alias {
    Buffer inner;          // the buffer that lies inside the other
    std::uint32_t offset;  // where its chunk 0 lies in the other
  };
  std::optional<Alias> alias(std::uint32_t rank) const;
  // In place, two names may refer to one place. The canonical name is that in the larger buffer; programs use only it.
  Place canonical(std::uint32_t rank, Place place) const;
  // Whether the program may write there. Out of place the input is read-only; in place too, unless it aliases an
  // output.
  bool writable(std::uint32_t rank, Place canonical_place) const;

  // The required value of output chunk `index` of `rank`. Valid while the collective lives.
  Demand demand(std::uint32_t rank, std::uint32_t index) const;
  // The same as a list of terms.
  std::vector<InputChunk> expected_terms(std::uint32_t rank, std::uint32_t index) const;

  bool operator==(const Collective& other) const;

 private:
  CollectiveKind kind_ = CollectiveKind::allreduce;
  bool in_place_ = false;
  std::uint32_t ranks_ = 0;
  std::uint32_t chunks_ = 0;
  std::uint32_t root_ = 0;
  std::uint32_t split_ = 1;
  std::shared_ptr<const CustomCollective> custom_;
  std::vector<std::uint64_t> custom_base_;  // first output chunk of each rank in CustomCollective::begin
};

}  // namespace gc3::model
