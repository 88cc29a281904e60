#include "gc3/compiler/trace.h"

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
