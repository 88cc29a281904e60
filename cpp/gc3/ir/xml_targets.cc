#include "gc3/ir/xml_targets.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/files.h"
#include "gc3/base/text.h"
#include "gc3/ir/xml_document.h"

namespace gc3::ir {
namespace {

// Whether a dialect has a name for a collective.
bool knows(XmlDialect dialect, std::string_view collective) {
  using namespace std::string_view_literals;
  constexpr std::array kMsccl = {"allreduce"sv, "allgather"sv,      "reduce"sv, "broadcast"sv,
                                 "alltoall"sv,  "reduce_scatter"sv, "custom"sv};
  constexpr std::array kRccl = {"allreduce"sv, "allgather"sv,     "reduce"sv, "broadcast"sv,
                                "alltoall"sv,  "reducescatter"sv, "gather"sv, "scatter"sv};
  return dialect == XmlDialect::msccl ? std::ranges::find(kMsccl, collective) != kMsccl.end()
                                      : std::ranges::find(kRccl, collective) != kRccl.end();
}

// Checks a document rank by rank; every message names the limit and the element that exceeds it.
class TargetCheck {
 public:
  TargetCheck(const XmlDocument& doc, const XmlTokens& tokens, const XmlTarget& target)
      : doc_(doc), tokens_(tokens), target_(target) {}

  Status check() {
    GC3_CHECK(check_algo());
    if (doc_.gpus.size() > kXmlMaxChildren)
      return over(doc_.offset, "the program", doc_.gpus.size(), "ranks", kXmlMaxChildren);
    for (const XmlGpu& gpu : doc_.gpus) {
      GC3_CHECK(check_rank(gpu));
      for (std::uint32_t t = 0; t < gpu.tb_count; ++t) GC3_CHECK(check_threadblock(gpu, t));
    }
    if (doc_.channels > target_.channels)
      return over(doc_.offset, "the program", doc_.channels, "channels", target_.channels);
    return {};
  }

 private:
  Status check_algo() const {
    const std::string title(target_.title);
    if (!knows(target_.dialect, doc_.collective)) {
      const bool spelled = doc_.collective == "reduce_scatter" || doc_.collective == "reducescatter";
      return refused(doc_.offset,
                     title + " knows no coll=" + in_quotes(doc_.collective) + (spelled ? rewritten() : ""));
    }
    if (target_.dialect == XmlDialect::msccl) {
      if (doc_.name == "2D" && doc_.collective == "alltoall") {
        return refused(doc_.offset, "the name '2D' makes " + title + " run an AllToAll of its own instead");
      }
      if (doc_.states_max_bytes && doc_.max_bytes <= doc_.min_bytes) {
        return refused(doc_.offset,
                       title + " takes sizes from minBytes to below maxBytes, and there are none" + rewritten());
      }
      return {};
    }
    if (!doc_.states_out_of_place || !doc_.states_min_bytes || !doc_.states_max_bytes) {
      return refused(doc_.offset, title + " wants outofplace, minBytes and maxBytes, all three" + rewritten());
    }
    if (doc_.max_bytes != 0 && doc_.max_bytes < doc_.min_bytes) {
      return refused(doc_.offset, title + " takes sizes from minBytes to maxBytes, and there are none");
    }
    return {};
  }

  Status check_rank(const XmlGpu& gpu) {
    const std::string rank = "rank " + std::to_string(gpu.id);
    const std::uint32_t tbs = gpu.tb_count;
    if (tbs == 0) {
      return refused(gpu.offset, rank + " has no threadblock, and " + std::string(target_.title) +
                                     " cannot launch a kernel of none");
    }
    if (tbs > target_.threadblocks) return over(gpu.offset, rank, tbs, "threadblocks", target_.threadblocks);
    std::size_t nodes = 1 + doc_.gpus.size() + tbs;
    for (std::uint32_t t = gpu.first_tb; t < gpu.first_tb + tbs; ++t) nodes += doc_.threadblocks[t].step_count;
    if (nodes > kXmlMaxNodes) {
      return over(gpu.offset, rank, nodes, "elements of ranks, threadblocks and steps", kXmlMaxNodes);
    }
    GC3_CHECK(check_channels(gpu));
    if (!target_.whole_buffer_use) return {};
    const std::uint64_t in_factor = doc_.collective == "allgather" ? doc_.ranks : 1;
    const std::uint64_t out_factor = doc_.collective == "reduce_scatter" ? doc_.ranks : 1;
    GC3_CHECK(check_buffer(gpu, "input", gpu.input_chunks, in_factor));
    return check_buffer(gpu, "output", gpu.output_chunks, out_factor);
  }

  Status check_buffer(const XmlGpu& gpu, const char* name, std::uint64_t chunks, std::uint64_t factor) const {
    if (chunks == 0 || chunks * factor == doc_.chunks_per_loop) return {};
    return refused(gpu.offset, "rank " + std::to_string(gpu.id) + ": " + std::string(target_.title) +
                                   " takes only buffers of " + std::to_string(doc_.chunks_per_loop) + " chunks for '" +
                                   doc_.collective + "', the " + name + " has " + std::to_string(chunks * factor));
  }

  Status check_channels(const XmlGpu& gpu) {
    senders_.assign(target_.channels, 0);
    receivers_.assign(target_.channels, 0);
    for (std::uint32_t t = 0; t < gpu.tb_count; ++t) {
      const XmlThreadblock& tb = doc_.threadblocks[gpu.first_tb + t];
      const std::string who = place(gpu, t);
      if (tb.channel >= target_.channels) {
        return over(tb.offset, who, std::uint64_t{tb.channel} + 1, "channels", target_.channels);
      }
      const std::uint32_t most = target_.threadblocks_per_channel;
      const std::string on = " on channel " + std::to_string(tb.channel);
      if (tb.send_peer != kNoRank && ++senders_[tb.channel] > most) {
        return over(tb.offset, who, senders_[tb.channel], "sending threadblocks" + on, most);
      }
      if (tb.recv_peer != kNoRank && ++receivers_[tb.channel] > most) {
        return over(tb.offset, who, receivers_[tb.channel], "receiving threadblocks" + on, most);
      }
    }
    return {};
  }

  Status check_threadblock(const XmlGpu& gpu, std::uint32_t t) const {
    const XmlThreadblock& tb = doc_.threadblocks[gpu.first_tb + t];
    if (tb.step_count > target_.steps) return over(tb.offset, place(gpu, t), tb.step_count, "steps", target_.steps);
    for (std::uint32_t s = 0; s < tb.step_count; ++s) {
      const XmlStep& step = doc_.steps[tb.first_step + s];
      const auto who = [&] { return place(gpu, t) + " step " + std::to_string(s); };
      const auto more = [&](std::int32_t has, const char* what, std::uint32_t limit) {
        return over(step.offset, who(), static_cast<std::uint64_t>(has), what, limit);
      };
      if (step.dep_tb > static_cast<std::int32_t>(kXmlMaxDependency)) {
        return more(step.dep_tb, "as the threadblock it waits for", kXmlMaxDependency);
      }
      if (step.opcode == Opcode::nop) continue;
      const OpcodeInfo& op = info(step.opcode);
      if (!target_.fused && op.receives && (op.sends || op.reads_local)) {
        return refused(step.offset,
                       who() + ": " + std::string(target_.title) + " does not run '" + std::string(op.xml) + "'");
      }
      if (step.count > static_cast<std::int32_t>(kXmlMaxCount)) return more(step.count, "chunks at once", kXmlMaxCount);
      const std::int32_t offset = std::max(op.reads_local ? step.src_chunk : 0, op.writes_local ? step.dst_chunk : 0);
      if (offset > static_cast<std::int32_t>(kXmlMaxOffset))
        return more(offset, "as the index of a chunk", kXmlMaxOffset);
    }
    return {};
  }

  static std::string place(const XmlGpu& gpu, std::uint32_t t) {
    return "rank " + std::to_string(gpu.id) + " threadblock " + std::to_string(t);
  }

  // The command that writes in the target's dialect what the document has in another one.
  std::string rewritten() const {
    return ": gc3 export FILE.xml -o NEW.xml --target " + std::string(target_.name) + " writes it for this one";
  }

  Diagnostic refused(std::size_t offset, std::string text) const {
    Diagnostic problem = tokens_.error_at(offset, std::move(text));
    problem.code = ErrorCode::TargetLimit;
    return problem;
  }
  Diagnostic over(std::size_t offset, const std::string& who, std::uint64_t has, const std::string& what,
                  std::uint64_t limit) const {
    return refused(offset, who + " has " + std::to_string(has) + " " + what + ", the limit of " +
                               std::string(target_.title) + " is " + std::to_string(limit));
  }

  const XmlDocument& doc_;
  const XmlTokens& tokens_;
  const XmlTarget& target_;
  std::vector<std::uint32_t> senders_;
  std::vector<std::uint32_t> receivers_;
};

}  // namespace

const XmlTarget* find_xml_target(std::string_view name) {
  const auto* const found =
      std::find_if(kXmlTargets.begin(), kXmlTargets.end(), [&](const XmlTarget& t) { return t.name == name; });
  return found == kXmlTargets.end() ? nullptr : found;
}

Status check_loadable(const XmlDocument& doc, const XmlTokens& tokens, const XmlTarget& target) {
  return TargetCheck(doc, tokens, target).check();
}

}  // namespace gc3::ir
