#include "gc3/compiler/trace.h"

#include <algorithm>

#include "gc3/base/errors/common.h"
#include "gc3/base/interrupt.h"

namespace gc3::compiler {

std::string describe(const std::vector<std::string>& buffer_names, const Range& range, std::uint32_t count) {
  std::string out =
      "rank " + std::to_string(range.rank) + " " + buffer_names[range.buffer] + "[" + std::to_string(range.index);
  if (count > 1) out += ".." + std::to_string(range.index + count - 1);
  return out + "]";
}

std::string describe(const Trace& trace, const ChunkOp& op) {
  if (op.kind != OpKind::apply) {
    return (op.kind == OpKind::copy ? "copy " : "reduce ") + describe(trace.buffer_names, op.src, op.count) + " -> " +
           describe(trace.buffer_names, op.dst, op.count);
  }
  const Applied& applied = trace.applied[op.applied];
  std::string out = "apply " + trace.collective.custom_data()->operations[applied.operation];
  for (const Range& range : applied.reads) out += " " + describe(trace.buffer_names, range, 1);
  out += " ->";
  for (const Range& range : applied.writes) out += " " + describe(trace.buffer_names, range, 1);
  return out;
}

Result<Trace> expand(const Trace& trace) {
  const std::uint32_t ranks = trace.collective.ranks();
  constexpr std::uint64_t kMost = std::uint64_t{1} << 26U;
  std::uint64_t chunks = 0;
  for (const auto& rows : trace.extents) chunks += std::uint64_t{rows.front()} * ranks;
  if (std::max<std::uint64_t>(chunks, std::uint64_t{trace.ops.size()} * ranks) > kMost) {
    return Diagnostic(ErrorCode::ProgramTooLarge, std::to_string(ranks) + " ranks in one class, whose program of all " +
                                                      "ranks has more than " + std::to_string(kMost) +
                                                      " operations or chunks");
  }
  Trace out = trace;
  out.symmetry = {};
  out.axes.clear();
  for (auto& rows : out.extents) rows.assign(ranks, rows.front());
  out.ops.clear();
  out.ops.reserve(trace.ops.size() * ranks);
  Breath breathe;
  const auto on = [&](const Range& range, std::uint32_t count, std::uint32_t rank) {
    return Range{rank, trace.symmetry.moved(trace.axes[range.buffer], range.index, count, rank), range.buffer};
  };
  for (const ChunkOp& op : trace.ops) {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      breathe();
      ChunkOp& here = out.ops.emplace_back(op);
      const std::uint32_t to = trace.symmetry.plus(r, op.offset);
      here.offset = 0;
      here.src = on(op.src, op.count, r);
      here.dst = on(op.dst, op.count, to);
      here.local = on(op.local, op.count, to);
    }
  }
  return out;
}

SlotMap::SlotMap(const std::vector<std::vector<std::uint32_t>>& extents) {
  for (const auto& per_rank : extents) {
    auto& base = base_.emplace_back();
    for (const std::uint32_t extent : per_rank) {
      base.push_back(size_);
      size_ += extent;
    }
  }
}

std::string to_text(const Trace& trace) {
  std::string out = "trace " + trace.name + ": " + std::string(trace.collective.name()) + ", " +
                    std::to_string(trace.ranks()) + " ranks, " + std::to_string(trace.collective.chunks()) + " chunks" +
                    (trace.collective.in_place() ? ", in place" : "") + "\n";
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const ChunkOp& op = trace.ops[i];
    out += std::to_string(i) + ": " + describe(trace, op);
    if (op.channel != kAuto) out += " ch=" + std::to_string(op.channel);
    if (op.send_tb != kAuto) out += " sendtb=" + std::to_string(op.send_tb);
    if (op.recv_tb != kAuto) out += " recvtb=" + std::to_string(op.recv_tb);
    if (op.factor != 1) out += " lane=" + std::to_string(op.lane) + "/" + std::to_string(op.factor);
    if (op.group != kNone) out += " group=" + std::to_string(op.group);
    if (op.step != 0) out += " step=" + std::to_string(op.step);
    if (op.where.exists()) out += "  # line " + std::to_string(trace.location(op.where).line);
    out += "\n";
  }
  return out;
}

}  // namespace gc3::compiler
