#include "gc3/compiler/passes/rename_ranks.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/interrupt.h"
#include "gc3/model/symmetry.h"

namespace gc3::compiler {
namespace {

class Renamer {
 public:
  Renamer(const Trace& trace, std::span<const std::uint32_t> order)
      : trace_(trace),
        order_(order),
        apart_(static_cast<BufferIndex>(trace.buffer_names.size())),
        collected_(trace.ranks(), 0) {}

  Trace run(model::Collective collective) {
    out_ = trace_;
    out_.collective = std::move(collective);
    for (std::size_t b = 0; b < out_.extents.size(); ++b) {
      for (std::uint32_t r = 0; r < trace_.ranks(); ++r) out_.extents[b][order_[r]] = trace_.extents[b][r];
    }
    out_.ops.clear();
    Breath breathe;
    for (const ChunkOp& op : trace_.ops) {
      breathe();
      add(op);
    }
    if (std::ranges::any_of(collected_, [](std::uint32_t chunks) { return chunks != 0; })) {
      out_.buffer_names.emplace_back("renamed");
      out_.extents.push_back(collected_);
    }
    return std::move(out_);
  }

 private:
  // Chunk `k` of a range, where it is after renaming.
  Range at(const Range& range, std::uint32_t k) const {
    Range found{order_[range.rank], range.index + k, range.buffer};
    const std::uint32_t chunks = trace_.collective.chunks();  // of a block
    // A buffer of one block per rank holds the block of rank b at b.
    if (blocks_of(range) == trace_.ranks()) found.index = order_[found.index / chunks] * chunks + found.index % chunks;
    return found;
  }
  std::uint32_t blocks_of(const Range& range) const {
    if (range.buffer == kInput) return trace_.collective.input_blocks(range.rank);
    return range.buffer == kOutput ? trace_.collective.output_blocks(range.rank) : 0;
  }
  // How many chunks from `k` on are still side by side.
  std::uint32_t together(const Range& range, std::uint32_t k, std::uint32_t count) const {
    const std::uint32_t first = at(range, k).index;
    std::uint32_t n = 1;
    while (k + n < count && at(range, k + n).index == first + n) ++n;
    return n;
  }
  bool whole(const Range& range, std::uint32_t count) const { return together(range, 0, count) == count; }

  void add(const ChunkOp& op) {
    const bool result_apart = !whole(op.dst, op.count) || !whole(op.local, op.count);
    ChunkOp renamed = op;
    renamed.src = at(op.src, 0);
    renamed.dst = at(op.dst, 0);
    renamed.local = at(op.local, 0);
    if (!op.remote()) {
      add_parts(op, [&](std::uint32_t k) { return at(op.src, k); }, op.src);
      return;
    }
    if (!whole(op.src, op.count)) {
      const Range all = room(renamed.src.rank, op.count);
      for (std::uint32_t k = 0; k < op.count;) {
        const std::uint32_t n = together(op.src, k, op.count);
        add_copy(op, at(op.src, k), {all.rank, all.index + k, all.buffer}, n);
        k += n;
      }
      renamed.src = all;
    }
    if (!result_apart) {
      out_.ops.push_back(renamed);
      return;
    }
    const Range all = room(renamed.dst.rank, op.count);
    renamed.kind = OpKind::copy;
    renamed.group = kNone;  // the sum is computed elsewhere
    renamed.dst = renamed.local = all;
    out_.ops.push_back(renamed);
    add_parts(op, [&](std::uint32_t k) { return Range{all.rank, all.index + k, all.buffer}; }, std::nullopt);
  }

  // The operation within a rank, cut where its places are apart. `source(k)`: where chunk k of the source is.
  template <class Source>
  void add_parts(const ChunkOp& op, Source source, const std::optional<Range>& renamed_source) {
    for (std::uint32_t k = 0; k < op.count;) {
      std::uint32_t n = std::min(together(op.dst, k, op.count), together(op.local, k, op.count));
      if (renamed_source) n = std::min(n, together(*renamed_source, k, op.count));
      ChunkOp part = inside(op, source(k), at(op.dst, k), n);
      part.kind = op.kind;
      part.local = part.dst;
      // Only what comes from another rank can be added to a value at a third place.
      if (op.kind == OpKind::reduce && !(op.local == op.dst)) add_copy(op, at(op.local, k), part.dst, n);
      out_.ops.push_back(part);
      k += n;
    }
  }
  void add_copy(const ChunkOp& op, const Range& src, const Range& dst, std::uint32_t count) {
    ChunkOp copy = inside(op, src, dst, count);
    copy.kind = OpKind::copy;
    copy.local = dst;
    out_.ops.push_back(copy);
  }
  // A part of `op` that stays on its rank, and so has no connection.
  static ChunkOp inside(const ChunkOp& op, const Range& src, const Range& dst, std::uint32_t count) {
    ChunkOp part = op;
    part.src = src;
    part.dst = dst;
    part.count = count;
    if (op.remote()) {
      part.channel = part.send_tb = part.recv_tb = kAuto;
      part.group = kNone;
    }
    return part;
  }
  // New scratch chunks on a rank, by its new name.
  Range room(std::uint32_t rank, std::uint32_t count) {
    const std::uint32_t first = collected_[rank];
    collected_[rank] += count;
    return {rank, first, apart_};
  }

  const Trace& trace_;
  std::span<const std::uint32_t> order_;
  BufferIndex apart_;                     // the buffer for chunks of messages that lie apart
  std::vector<std::uint32_t> collected_;  // its chunks, by rank
  Trace out_;
};

}  // namespace

Result<Trace> rename_ranks(const Trace& trace, std::span<const std::uint32_t> order) {
  if (order.empty()) return trace;
  std::vector<std::uint32_t> sorted(order.begin(), order.end());
  std::ranges::sort(sorted);
  bool every = sorted.size() == trace.ranks();
  for (std::uint32_t r = 0; every && r < trace.ranks(); ++r) every = sorted[r] == r;
  if (!every) {
    return Diagnostic(ErrorCode::BadArgument,
                      "order: expected each rank from 0 to " + std::to_string(trace.ranks() - 1) + " once");
  }
  const model::Collective& does = trace.collective;
  if (!model::is_symmetric(does.kind())) {
    return Diagnostic(ErrorCode::BadArgument, "order: the ranks of " + std::string(does.name()) +
                                                  " cannot be renamed, because what a rank "
                                                  "gets depends on its number");
  }
  const std::uint32_t root = model::is_rooted(does.kind()) ? order[does.root()] : does.root();
  GC3_ASSIGN(model::Collective renamed,
             model::Collective::builtin(does.kind(), does.ranks(), does.chunks(), root, does.in_place()));
  return Renamer(trace, order).run(std::move(renamed));
}

}  // namespace gc3::compiler
