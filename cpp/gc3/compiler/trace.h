// A trace: the chunk operations of a program in the order the user wrote them. It is the input of the compiler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gc3/base/diagnostic.h"
#include "gc3/base/ids.h"
#include "gc3/base/result.h"
#include "gc3/model/collective.h"
#include "gc3/model/symmetry.h"
#include "gc3/model/types.h"

namespace gc3::compiler {

// Buffers of a trace by number: input, output, scratch, then further named scratch buffers.
using BufferIndex = std::uint16_t;
inline constexpr BufferIndex kInput = 0;
inline constexpr BufferIndex kOutput = 1;
inline constexpr BufferIndex kScratch = 2;

inline constexpr std::int32_t kAuto = -1;  // the compiler chooses this channel or threadblock

// `count` consecutive chunks of a buffer of a rank. Buffers are canonical: see model::Collective::canonical.
struct Range {
  std::uint32_t rank = 0;
  std::uint32_t index = 0;
  BufferIndex buffer = kInput;
  bool operator==(const Range&) const = default;
};

enum class OpKind : std::uint8_t { copy, reduce, apply };

// copy: dst = src. reduce: dst = local + src, where local is dst unless a pass has found the value at another location
// of its rank. All cover `count` chunks. apply: see Applied; src and dst are the first chunks that it reads and writes.
struct ChunkOp {
  OpKind kind = OpKind::copy;
  Range src;
  Range dst;
  Range local;
  std::uint32_t count = 1;
  std::int32_t channel = kAuto;
  std::int32_t send_tb = kAuto;
  std::int32_t recv_tb = kAuto;
  std::uint32_t factor = 1;  // parallelize: the number of parts that `split` cuts this operation into
  std::uint32_t lane = 0;    // the index of this part; lanes use disjoint channels
  std::uint32_t step = 0;    // what the author orders: instructions of lower steps come first
  LocationId where;
  std::uint32_t group = kNone;    // of its lane: the multicast of a copy, the in-switch sum of a reduction
  std::uint32_t applied = kNone;  // of apply: in Trace::applied
  std::uint32_t offset = 0;       // in a trace of representatives: the translation that leads from src to dst
  bool adapts = false;            // a copy that the user did not write: it adapts an algorithm to the other mode

  bool remote() const { return src.rank != dst.rank || offset != 0; }
  // The rank of `dst`; in a trace of representatives that to which rank 0 sends.
  std::uint32_t to() const { return dst.rank + offset; }
};

// A use of a compute operation, on single chunks of one rank.
struct Applied {
  std::uint32_t operation = 0;  // in CustomCollective::operations
  std::vector<Range> reads;
  std::vector<Range> writes;
  std::vector<std::uint32_t> lengths = {};  // of what it writes: see ir::Compute; once the trace is finished
};

// With a symmetry it is a trace of representatives: each operation stands for all of its translations, done at once.
// Its places are all of rank 0, which by symmetry has at its place what any other rank has at the translated one.
struct Trace {
  std::string name;
  model::Collective collective;
  model::Protocol protocol = model::Protocol::Simple;
  std::vector<std::string> buffer_names;            // by BufferIndex
  std::vector<std::vector<std::uint32_t>> extents;  // [buffer][rank]: chunks
  std::vector<ChunkOp> ops;
  std::vector<Applied> applied;
  std::vector<std::string> lengths;       // their names, see ir::Compute
  std::vector<SourceLocation> locations;  // by LocationId; distinct, together with their callers
  std::vector<LocationId> callers;  // by LocationId: the line, of a lower id, that called the function of this one

  model::Symmetry symmetry;
  std::vector<model::Axes> axes;  // by BufferIndex, with a symmetry

  std::uint32_t ranks() const { return symmetry.exists() ? 1 : collective.ranks(); }
  SourceLocation location(LocationId id) const { return id.exists() ? locations[id.value] : SourceLocation{}; }
};

// "rank 3 output[2]" or "rank 3 output[2..5]", as in messages and dumps.
std::string describe(const std::vector<std::string>& buffer_names, const Range& range, std::uint32_t count);

// "copy rank 0 input[1] -> rank 1 output[1]", as in dumps.
std::string describe(const Trace& trace, const ChunkOp& op);

// The trace of all ranks, by operation and then by rank.
Result<Trace> expand(const Trace& trace);

// Numbers every (rank, buffer, index) of a trace from 0, so that per-slot state is one flat array.
class SlotMap {
 public:
  explicit SlotMap(const std::vector<std::vector<std::uint32_t>>& extents);
  std::uint64_t slot(const Range& range) const { return base_[range.buffer][range.rank] + range.index; }
  std::uint64_t size() const { return size_; }

 private:
  std::vector<std::vector<std::uint64_t>> base_;
  std::uint64_t size_ = 0;
};

std::string to_text(const Trace& trace);

}  // namespace gc3::compiler
