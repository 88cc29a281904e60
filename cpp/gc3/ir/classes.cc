#include "gc3/ir/classes.h"

#include <string>

#include "gc3/base/errors/common.h"
#include "gc3/base/interrupt.h"

namespace gc3::ir {

const Region& ClassProgram::region(model::Buffer buffer, std::uint32_t chunk) const {
  const Region* found = &regions.front();
  for (const Region& r : regions) {
    if (r.buffer == buffer && r.begin <= chunk) found = &r;
  }
  return *found;
}

std::uint32_t ClassProgram::moved(model::Buffer buffer, std::uint32_t chunk, std::uint32_t count,
                                  std::uint32_t by) const {
  const Region& in = region(buffer, chunk);
  return in.begin + symmetry.moved(in.axes, chunk - in.begin, count, by);
}

Result<Program> expand(const ClassProgram& program, std::uint64_t most) {
  const Program& one = program.representative;
  const std::uint32_t ranks = program.ranks();
  if (std::uint64_t{one.instructions.size()} * ranks > most || !one.collective.can_split(1) ||
      std::uint64_t{one.ranks.front().scratch_chunks} * ranks > kMaxScratchChunks) {
    return Diagnostic(ErrorCode::ProgramTooLarge,
                      "'" + one.name + "' has " + std::to_string(ranks) + " ranks in one class of " +
                          std::to_string(one.instructions.size()) +
                          " steps: it can be compiled, proven and shown, but not be made for all ranks");
  }
  Program out = one;
  out.ranks.clear();
  out.threadblocks.clear();
  out.instructions.clear();
  out.dependencies.clear();
  out.source.line_of.clear();
  Breath breathe;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    RankProgram& rank = out.ranks.emplace_back(one.ranks.front());
    rank.first_tb = static_cast<std::uint32_t>(out.threadblocks.size());
    const auto first_instruction = static_cast<std::uint32_t>(out.instructions.size());
    const auto first_dependency = static_cast<std::uint32_t>(out.dependencies.size());
    for (Threadblock tb : one.threadblocks) {
      if (tb.send_peer != kNoRank) tb.send_peer = program.symmetry.plus(r, tb.send_peer);
      if (tb.recv_peer != kNoRank) tb.recv_peer = program.symmetry.plus(r, tb.recv_peer);
      tb.first_instruction += first_instruction;
      out.threadblocks.push_back(tb);
    }
    for (Instruction i : one.instructions) {
      breathe();
      const OpcodeInfo& op = info(i.opcode);
      if (op.reads_local) i.src_chunk = program.moved(i.src_buffer, i.src_chunk, i.count, r);
      if (op.writes_local) i.dst_chunk = program.moved(i.dst_buffer, i.dst_chunk, i.count, r);
      i.dep_begin += first_dependency;
      out.instructions.push_back(i);
    }
    out.dependencies.insert(out.dependencies.end(), one.dependencies.begin(), one.dependencies.end());
    out.source.line_of.insert(out.source.line_of.end(), one.source.line_of.begin(), one.source.line_of.end());
  }
  return out;
}

}  // namespace gc3::ir
