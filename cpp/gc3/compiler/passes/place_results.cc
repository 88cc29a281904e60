#include "gc3/compiler/passes/place_results.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gc3/base/interrupt.h"

namespace gc3::compiler {
namespace {

class ResultPlacer {
 public:
  explicit ResultPlacer(const Trace& trace) : trace_(trace), last_copy_(trace.ranks(), kNone) {}

  Trace run() {
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      const ChunkOp& op = trace_.ops[i];
      if (op.adapts && op.src.buffer >= kScratch && op.dst.buffer == kOutput) last_copy_[op.dst.rank] = i;
    }
    if (std::ranges::all_of(last_copy_, [](std::uint32_t i) { return i == kNone; })) return trace_;
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) look_at(i);
    return placed();
  }

 private:
  // Keeps the rank's final copy if this operation prevents the result from being computed in the output.
  void look_at(std::uint32_t index) {
    const ChunkOp& op = trace_.ops[index];
    for (const Range* range : {&op.src, &op.dst, &op.local}) {
      std::uint32_t& last = last_copy_[range->rank];
      if (last == kNone || last == index) continue;
      const bool divisible = op.adapts && op.kind == OpKind::copy && op.src.buffer == kInput;
      if (range->buffer == kOutput || (!divisible && overlap(*range, op.count) && !inside(*range, op.count))) {
        last = kNone;
      }
    }
  }
  const ChunkOp& last_copy(const Range& range) const { return trace_.ops[last_copy_[range.rank]]; }
  bool overlap(const Range& range, std::uint32_t count) const {
    const ChunkOp& last = last_copy(range);
    return range.buffer == last.src.buffer && range.index < last.src.index + last.count &&
           last.src.index < range.index + count;
  }
  bool inside(const Range& range, std::uint32_t count) const {
    const ChunkOp& last = last_copy(range);
    return range.index >= last.src.index && range.index + count <= last.src.index + last.count;
  }

  Trace placed() const {
    Trace out = trace_;
    out.ops.clear();
    Breath breathe;
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      breathe();
      const ChunkOp& op = trace_.ops[i];
      if (last_copy_[op.dst.rank] == i) continue;
      if (last_copy_[op.dst.rank] == kNone || !overlap(op.dst, op.count) || inside(op.dst, op.count)) {
        out.ops.push_back(renamed(op));
        continue;
      }
      // A copy of the input that extends beyond the result at one or both ends.
      const ChunkOp& last = last_copy(op.dst);
      const std::uint32_t end = op.dst.index + op.count;
      const std::uint32_t cuts[] = {op.dst.index, std::clamp(last.src.index, op.dst.index, end),
                                    std::clamp(last.src.index + last.count, op.dst.index, end), end};
      for (std::size_t c = 0; c < 3; ++c) {
        if (cuts[c] == cuts[c + 1]) continue;
        ChunkOp part = op;
        part.src.index += cuts[c] - op.dst.index;
        part.dst.index = cuts[c];
        part.local = part.dst;
        part.count = cuts[c + 1] - cuts[c];
        out.ops.push_back(renamed(part));
      }
    }
    shrink(out);
    return out;
  }
  ChunkOp renamed(ChunkOp op) const {
    for (Range* range : {&op.src, &op.dst, &op.local}) {
      if (last_copy_[range->rank] == kNone || !overlap(*range, op.count)) continue;
      const ChunkOp& last = last_copy(*range);
      *range = {range->rank, range->index - last.src.index + last.dst.index, kOutput};
    }
    return op;
  }
  // Chunks behind the last used chunk of such a copy need no memory.
  void shrink(Trace& trace) const {
    const auto is_copy = [this](const Range& range) {
      return last_copy_[range.rank] != kNone && range.buffer == last_copy(range).src.buffer;
    };
    for (std::uint32_t r = 0; r < trace.ranks(); ++r) {
      if (last_copy_[r] != kNone) trace.extents[trace_.ops[last_copy_[r]].src.buffer][r] = 0;
    }
    for (const ChunkOp& op : trace.ops) {
      for (const Range* range : {&op.src, &op.dst, &op.local}) {
        if (!is_copy(*range)) continue;
        std::uint32_t& extent = trace.extents[range->buffer][range->rank];
        extent = std::max(extent, range->index + op.count);
      }
    }
  }

  const Trace& trace_;
  std::vector<std::uint32_t> last_copy_;  // by rank: the operation that copies its result to the output
};

}  // namespace

Trace place_results(const Trace& trace) {
  if (trace.collective.has_tensors()) return trace;  // operations name places: no value moves
  return ResultPlacer(trace).run();
}

}  // namespace gc3::compiler
