#include "gc3/compiler/passes/split.h"

#include <limits>
#include <numeric>

#include "gc3/base/errors/common.h"
#include "gc3/base/interrupt.h"

namespace gc3::compiler {

Result<Trace> split(const Trace& trace, std::uint32_t instances) {
  // Each instance has its own channels, and the limits of all targets are far below this.
  if (instances > kMaxChannels) {
    return Diagnostic(ErrorCode::ProgramTooLarge, std::to_string(instances) +
                                                      " instances have a channel each; a program has at most " +
                                                      std::to_string(kMaxChannels) + " channels");
  }
  std::uint64_t parts = instances;
  std::uint64_t total = 0;
  constexpr std::uint64_t kMax = std::numeric_limits<std::int32_t>::max();
  for (const ChunkOp& op : trace.ops) {
    parts = std::lcm(parts, static_cast<std::uint64_t>(op.factor) * instances);
    total += static_cast<std::uint64_t>(op.factor) * instances;
    if (parts > kMax || total > kMaxOps) {
      return Diagnostic(ErrorCode::ProgramTooLarge,
                        "its operations have more than " + std::to_string(kMaxOps) + " parallel parts")
          .at(trace.location(op.where));
    }
  }
  if (parts == 1) return trace;
  if (trace.collective.has_tensors()) {
    return Diagnostic(ErrorCode::NotWithCompute, std::to_string(parts) +
                                                     " parts of each chunk, which are instances or "
                                                     "parallel: operations take whole chunks");
  }
  if (!trace.collective.can_split(static_cast<std::uint32_t>(parts))) {
    return Diagnostic(ErrorCode::ProgramTooLarge, "every chunk cut into " + std::to_string(parts) + " parts");
  }
  Trace out;
  out.name = trace.name;
  out.protocol = trace.protocol;
  out.buffer_names = trace.buffer_names;
  out.locations = trace.locations;
  out.callers = trace.callers;
  out.collective = trace.collective.split_chunks(static_cast<std::uint32_t>(parts));
  for (const auto& buffer : trace.extents) {
    auto& row = out.extents.emplace_back();
    for (const std::uint32_t extent : buffer) {
      if (extent * parts > kMax) {
        return Diagnostic(ErrorCode::ProgramTooLarge, std::to_string(extent * parts) + " chunks in one buffer");
      }
      row.push_back(static_cast<std::uint32_t>(extent * parts));
    }
  }
  const auto cut = static_cast<std::uint32_t>(parts);
  out.ops.reserve(total);
  Breath breathe;
  for (const ChunkOp& op : trace.ops) {
    breathe();
    ChunkOp part = op;
    part.factor = op.factor * instances;
    part.count = op.count * (cut / part.factor);
    for (part.lane = 0; part.lane < part.factor; ++part.lane) {
      part.src.index = op.src.index * cut + part.lane * part.count;
      part.dst.index = op.dst.index * cut + part.lane * part.count;
      part.local.index = op.local.index * cut + part.lane * part.count;
      out.ops.push_back(part);
    }
  }
  return out;
}

}  // namespace gc3::compiler
