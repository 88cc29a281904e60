#include "gc3/compiler/passes/forward.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gc3/base/interrupt.h"

namespace gc3::compiler {
namespace {

class Forwarder {
 public:
  explicit Forwarder(const Trace& trace) : trace_(trace), slots_(trace.extents), copy_of_(slots_.size(), kNone) {}

  Trace run() {
    std::vector<bool> input_written(trace_.ranks(), false);
    for (const ChunkOp& op : trace_.ops) {
      if (op.dst.buffer == kInput) input_written[op.dst.rank] = true;
    }
    std::vector<ChunkOp> ops = trace_.ops;
    needed_.resize(ops.size());
    Breath breathe;
    for (std::uint32_t i = 0; i < ops.size(); ++i) {
      breathe();
      ChunkOp& op = ops[i];
      if (const Range* from = fresh(op.src, op.count)) op.src = shifted(*from, op.src);
      if (op.kind == OpKind::reduce) {
        const Range* from = fresh(op.dst, op.count);
        if (from != nullptr && op.remote()) {
          op.local = shifted(*from, op.dst);  // received data and the input are reduced into the destination
        } else {
          need(op.dst, op.count);
        }
      }
      // Copies that the user wrote stay: the user may need the order they impose.
      const bool copies_input =
          op.adapts && op.src.buffer == kInput && op.dst.buffer != kInput && !input_written[op.src.rank];
      const std::uint64_t first = slots_.slot(op.dst);
      std::fill_n(copy_of_.begin() + static_cast<std::ptrdiff_t>(first), op.count, copies_input ? i : kNone);
      if (copies_input) {
        needed_[i].assign(op.count, false);
        sources_.resize(ops.size());
        sources_[i] = op;
      }
    }
    need_results();
    return rebuilt(ops);
  }

 private:
  // The copy of which all of these chunks are still unchanged results, as the matching range of the input; null if
  // there is none.
  const Range* fresh(const Range& range, std::uint32_t count) {
    const std::uint64_t first = slots_.slot(range);
    const std::uint32_t copy = copy_of_[first];
    for (std::uint32_t c = 0; c < count; ++c) {
      if (copy != kNone && copy_of_[first + c] == copy) continue;
      need(range, count);
      return nullptr;
    }
    return &sources_[copy].src;
  }
  Range shifted(const Range& input, const Range& range) const {
    const Range& to = sources_[copy_of_[slots_.slot(range)]].dst;
    return {input.rank, input.index + (range.index - to.index), input.buffer};
  }
  // An operation needs these chunks at their location: the copies of them must be made.
  void need(const Range& range, std::uint32_t count) {
    const std::uint64_t first = slots_.slot(range);
    for (std::uint32_t c = 0; c < count; ++c) {
      const std::uint32_t copy = copy_of_[first + c];
      if (copy != kNone) needed_[copy][range.index + c - sources_[copy].dst.index] = true;
    }
  }
  void need_results() {
    const model::Collective& collective = trace_.collective;
    for (std::uint32_t r = 0; r < trace_.ranks(); ++r) {
      for (std::uint32_t i = 0; i < collective.output_chunks(r); ++i) {
        const model::Place p = collective.canonical(r, {model::Buffer::output, i});
        need({r, p.index, static_cast<BufferIndex>(p.buffer)}, 1);
      }
    }
  }
  Trace rebuilt(const std::vector<ChunkOp>& ops) const {
    Trace out = trace_;
    out.ops.clear();
    Breath breathe;
    for (std::uint32_t i = 0; i < ops.size(); ++i) {
      breathe();
      const std::vector<bool>& needed = needed_[i];
      if (needed.empty()) {
        out.ops.push_back(ops[i]);
        continue;
      }
      for (std::uint32_t c = 0; c < needed.size();) {  // one copy per contiguous run of chunks
        std::uint32_t end = c;
        while (end < needed.size() && needed[end]) ++end;
        if (end != c) {
          ChunkOp& part = out.ops.emplace_back(ops[i]);
          part.src.index += c;
          part.dst.index += c;
          part.local = part.dst;
          part.count = end - c;
        }
        c = std::max(end, c + 1);
      }
    }
    return out;
  }

  const Trace& trace_;
  SlotMap slots_;
  std::vector<std::uint32_t> copy_of_;     // per slot: the copy whose chunk it still holds
  std::vector<ChunkOp> sources_;           // by operation; of the copies
  std::vector<std::vector<bool>> needed_;  // by operation, empty unless a copy: the chunks that must be copied
};

}  // namespace

Trace forward_copies(const Trace& trace) {
  if (trace.collective.has_tensors()) return trace;  // operations name places: no value moves
  return Forwarder(trace).run();
}

}  // namespace gc3::compiler
