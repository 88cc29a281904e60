#include "gc3/ir/xml_layout.h"

#include <algorithm>
#include <string>

#include "gc3/base/errors/verifier.h"

namespace gc3::ir {

Status XmlRankLayout::lay_out(const Program& p, std::uint32_t rank) {
  const RankProgram& r = p.ranks[rank];
  const auto fail = [&](std::uint32_t t, std::uint32_t s, const std::string& why) {
    return Diagnostic(ErrorCode::BadStructure, "rank " + std::to_string(rank) + " threadblock " + std::to_string(t) +
                                                   " step " + std::to_string(s) + " " + why);
  };
  lines.clear();
  first_line.clear();
  position_.clear();
  uses_input = uses_output = false;
  const auto tbs = p.tbs(rank);
  const std::uint32_t first_instruction = tbs.empty() ? 0 : tbs.front().first_instruction;

  // The lines of the instructions: each has one, after a nop per dependency but the first.
  for (const Threadblock& tb : tbs) {
    std::uint32_t line = 0;
    std::uint32_t waits = 0;
    for (const Instruction& i : p.steps(tb)) {
      waits += i.dep_count;
      if (i.opcode != Opcode::nop) {
        line += std::max(waits, 1U) - 1;
        waits = 0;
      }
      position_.push_back(line);
      if (i.opcode != Opcode::nop) ++line;
    }
  }

  for (std::uint32_t t = 0; t < r.tb_count; ++t) {
    const Threadblock& tb = tbs[t];
    first_line.push_back(static_cast<std::uint32_t>(lines.size()));
    waits_.clear();
    std::uint32_t s = 0;
    for (const Instruction& i : p.steps(tb)) {
      const std::size_t own = waits_.size();
      for (const Dependency& d : p.deps(i)) {
        if (d.tb >= r.tb_count || d.step >= tbs[d.tb].instruction_count)
          return fail(t, s, "waits for a step that does not exist");
        const std::uint32_t target = tbs[d.tb].first_instruction + d.step;
        if (p.instructions[target].opcode == Opcode::nop)
          return fail(t, s, "waits for a nop, which XML cannot express");
        if (p.instructions[target].has_dependents == 0) return fail(t, s, "waits for a step that does not signal");
        waits_.push_back({d.tb, position_[target - first_instruction]});
      }
      ++s;
      if (i.opcode == Opcode::nop) continue;
      // The line of the instruction carries its first dependency, as readers of the format require.
      if (own != waits_.size())
        std::rotate(waits_.begin(), waits_.begin() + static_cast<std::ptrdiff_t>(own), waits_.end());
      for (std::size_t d = 1; d < waits_.size(); ++d) lines.push_back({.dep = waits_[d], .has_dep = true});
      XmlLine line{.instruction = &i, .publishes = i.has_dependents != 0};
      if (!waits_.empty()) {
        line.dep = waits_.front();
        line.has_dep = true;
      }
      lines.push_back(line);
      waits_.clear();
      const OpcodeInfo& op = info(i.opcode);
      const auto uses = [&](model::Buffer b) {
        return (op.reads_local && i.src_buffer == b) || (op.writes_local && i.dst_buffer == b);
      };
      uses_input = uses_input || uses(model::Buffer::input);
      uses_output = uses_output || uses(model::Buffer::output);
    }
    break_reductions(first_line.back());
  }
  first_line.push_back(static_cast<std::uint32_t>(lines.size()));
  return {};
}

// The runtimes merge neighbouring reductions into one place from one buffer. They use the count of the last one for
// all, and overrun an array after 16. A step that publishes its completion ends such a run, and publishing costs only a
// store.
void XmlRankLayout::break_reductions(std::uint32_t first) {
  std::uint32_t run = 0;
  for (std::size_t k = first; k < lines.size(); ++k) {
    const Instruction* const i = lines[k].instruction;
    if (i == nullptr || i->opcode != Opcode::reduce) {
      run = 0;
      continue;
    }
    const Instruction* const before = run == 0 ? nullptr : lines[k - 1].instruction;
    const bool merges = before != nullptr && !lines[k - 1].publishes && !lines[k].has_dep &&
                        before->dst_buffer == i->dst_buffer && before->dst_chunk == i->dst_chunk &&
                        before->src_buffer == i->src_buffer;
    if (merges && (before->count != i->count || run == kMaxMergedReductions)) {
      lines[k - 1].publishes = true;
      run = 1;
    } else {
      run = merges ? run + 1 : 1;
    }
  }
}

std::uint64_t xml_chunks_per_loop(const model::Collective& c) {
  using model::CollectiveKind;
  const bool block_per_rank = c.kind() == CollectiveKind::allgather || c.kind() == CollectiveKind::reducescatter ||
                              c.kind() == CollectiveKind::alltoall;
  return std::uint64_t{c.chunks()} * (block_per_rank ? c.ranks() : 1);
}

}  // namespace gc3::ir
