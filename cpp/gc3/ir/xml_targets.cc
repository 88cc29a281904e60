#include "gc3/ir/xml_targets.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gc3/ir/xml_layout.h"
#include "gc3/ir/xml_read.h"
#include "gc3/ir/xml_tokens.h"

namespace gc3::ir {
namespace {

// Checks a program rank by rank; every message names the limit and who exceeds it.
class TargetCheck {
 public:
  TargetCheck(const Program& program, const XmlTarget& target) : p_(program), target_(target) {}

  Status check() {
    const std::size_t name = escape_attribute(p_.name).size();
    if (name > kXmlMaxName) return over("the program", name, "bytes in its name as XML", kXmlMaxName);
    if (target_.name == "msccl" && p_.name == "2D" && p_.collective.kind() == model::CollectiveKind::alltoall) {
      return Diagnostic(ErrorCode::TargetLimit,
                        "the name '2D' makes " + std::string(target_.title) + " run an AllToAll of its own instead");
    }
    const std::uint32_t slots = xml_runtime_slots(p_.protocol);
    if (p_.slots > slots) {
      return over("the program", p_.slots, "FIFO slots with protocol " + std::string(name_of(p_.protocol)), slots);
    }
    if (p_.ranks.size() > kXmlMaxChildren) return over("the program", p_.ranks.size(), "ranks", kXmlMaxChildren);
    for (std::uint32_t r = 0; r < p_.ranks.size(); ++r) {
      GC3_CHECK(layout_.lay_out(p_, r));
      GC3_CHECK(check_rank(r));
      for (std::uint32_t t = 0; t < p_.ranks[r].tb_count; ++t) GC3_CHECK(check_threadblock(r, t));
    }
    return {};
  }

 private:
  Status check_rank(std::uint32_t r) {
    const std::string rank = "rank " + std::to_string(r);
    const std::uint32_t tbs = p_.ranks[r].tb_count;
    if (tbs > target_.threadblocks) return over(rank, tbs, "threadblocks", target_.threadblocks);
    const std::size_t nodes = 1 + p_.ranks.size() + tbs + layout_.lines.size();
    if (nodes > kXmlMaxNodes) return over(rank, nodes, "elements of ranks, threadblocks and steps", kXmlMaxNodes);
    GC3_CHECK(check_channels(r));
    if (!target_.whole_buffer_use) return {};
    const model::Collective& c = p_.collective;
    const std::uint64_t in_factor = c.kind() == model::CollectiveKind::allgather ? c.ranks() : 1;
    const std::uint64_t out_factor = c.kind() == model::CollectiveKind::reducescatter ? c.ranks() : 1;
    GC3_CHECK(check_buffer(rank, "input", layout_.uses_input, c.input_chunks(r) * in_factor));
    return check_buffer(rank, "output", layout_.uses_output, c.output_chunks(r) * out_factor);
  }

  Status check_buffer(const std::string& rank, const char* name, bool used, std::uint64_t chunks) const {
    const std::uint64_t wanted = xml_chunks_per_loop(p_.collective);
    if (!used || chunks == wanted) return {};
    return Diagnostic(ErrorCode::TargetLimit, rank + ": " + std::string(target_.title) + " takes only buffers of " +
                                                  std::to_string(wanted) + " chunks for '" +
                                                  std::string(p_.collective.name()) + "', the " + name + " has " +
                                                  std::to_string(chunks));
  }

  Status check_channels(std::uint32_t r) {
    senders_.assign(target_.channels, 0);
    receivers_.assign(target_.channels, 0);
    std::uint32_t t = 0;
    for (const Threadblock& tb : p_.tbs(r)) {
      const std::string who = place(r, t++);
      if (tb.channel >= target_.channels) return over(who, std::uint64_t{tb.channel} + 1, "channels", target_.channels);
      const std::uint32_t most = target_.threadblocks_per_channel;
      const std::string on = " on channel " + std::to_string(tb.channel);
      if (tb.send_peer != kNoRank && ++senders_[tb.channel] > most) {
        return over(who, senders_[tb.channel], "sending threadblocks" + on, most);
      }
      if (tb.recv_peer != kNoRank && ++receivers_[tb.channel] > most) {
        return over(who, receivers_[tb.channel], "receiving threadblocks" + on, most);
      }
    }
    return {};
  }

  Status check_threadblock(std::uint32_t r, std::uint32_t t) const {
    const std::uint32_t first = layout_.first_line[t];
    const std::uint32_t steps = layout_.first_line[t + 1] - first;
    if (steps > target_.steps) return over(place(r, t), steps, "steps", target_.steps);
    for (std::uint32_t s = 0; s < steps; ++s) {
      const XmlLine& line = layout_.lines[first + s];
      const auto who = [&] { return place(r, t) + " step " + std::to_string(s); };
      if (line.has_dep && line.dep.tb > kXmlMaxDependency) {
        return over(who(), line.dep.tb, "as the threadblock it waits for", kXmlMaxDependency);
      }
      if (line.instruction == nullptr) continue;
      const Instruction& i = *line.instruction;
      const OpcodeInfo& op = info(i.opcode);
      if (!target_.fused && op.receives && (op.sends || op.reads_local)) {
        return Diagnostic(ErrorCode::TargetLimit,
                          who() + ": " + std::string(target_.title) + " does not run '" + std::string(op.xml) + "'");
      }
      if (i.count > kXmlMaxCount) return over(who(), i.count, "chunks at once", kXmlMaxCount);
      const std::uint32_t offset = std::max(i.src_chunk, i.dst_chunk);
      if (offset > kXmlMaxOffset) return over(who(), offset, "as the index of a chunk", kXmlMaxOffset);
    }
    return {};
  }

  static std::string place(std::uint32_t r, std::uint32_t t) {
    return "rank " + std::to_string(r) + " threadblock " + std::to_string(t);
  }

  Diagnostic over(const std::string& who, std::uint64_t has, const std::string& what, std::uint64_t limit) const {
    return {ErrorCode::TargetLimit, who + " has " + std::to_string(has) + " " + what + ", the limit of " +
                                        std::string(target_.title) + " is " + std::to_string(limit)};
  }

  const Program& p_;
  const XmlTarget& target_;
  XmlRankLayout layout_;
  std::vector<std::uint32_t> senders_;
  std::vector<std::uint32_t> receivers_;
};

}  // namespace

const XmlTarget* find_xml_target(std::string_view name) {
  const auto* const found =
      std::find_if(kXmlTargets.begin(), kXmlTargets.end(), [&](const XmlTarget& t) { return t.name == name; });
  return found == kXmlTargets.end() ? nullptr : found;
}

Status check_target(const Program& program, const XmlTarget& target) { return TargetCheck(program, target).check(); }

}  // namespace gc3::ir
