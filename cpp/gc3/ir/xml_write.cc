#include "gc3/ir/xml_write.h"

#include <algorithm>
#include <array>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/files.h"
#include "gc3/ir/printer.h"
#include "gc3/ir/xml_document.h"
#include "gc3/ir/xml_layout.h"
#include "gc3/ir/xml_read.h"
#include "gc3/ir/xml_runtime.h"
#include "gc3/ir/xml_tokens.h"

namespace gc3::ir {
namespace {

using model::CollectiveKind;

constexpr std::string_view kBufferLetters[] = {"i", "o", "s"};

// The value of coll; empty: the dialect has none.
std::string_view collective_name(CollectiveKind kind, XmlDialect dialect) {
  const bool msccl = dialect == XmlDialect::msccl;
  switch (kind) {
    case CollectiveKind::reducescatter:
      return msccl ? "reduce_scatter" : "reducescatter";
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return msccl ? "custom" : name_of(kind);
    case CollectiveKind::alltonext:
    case CollectiveKind::custom:
      return msccl ? "custom" : "";
    default:
      return name_of(kind);
  }
}

std::uint32_t channel_count(const Program& p) {
  std::uint32_t channels = 0;
  for (const Threadblock& tb : p.threadblocks) channels = std::max(channels, tb.channel + 1);
  return channels;
}

void print_algo(Printer& out, const Program& p, std::string_view collective, const XmlWriteOptions& options) {
  const model::Collective& c = p.collective;
  out("<algo name=\"", escape_attribute(p.name), "\" proto=\"", name_of(model::format_of(p.protocol)),
      "\" nchannels=\"", channel_count(p), "\" nchunksperloop=\"", xml_chunks_per_loop(c), "\" ngpus=\"", c.ranks(),
      "\" coll=\"", collective, "\" inplace=\"", c.in_place() ? 1 : 0, "\"");
  if (options.dialect == XmlDialect::rccl) {  // these runtimes require all three attributes
    out(" outofplace=\"", c.in_place() ? 0 : 1, "\" minBytes=\"", options.min_bytes, "\" maxBytes=\"",
        options.max_bytes, "\"");
  } else {
    // microsoft/msccl serves sizes below maxBytes; its default is 2^27, and it allocates scratch for the largest size.
    if (options.min_bytes != 0) out(" minBytes=\"", options.min_bytes, "\"");
    if (options.max_bytes != 0) out(" maxBytes=\"", std::min(options.max_bytes, kXmlMaxBytes - 1) + 1, "\"");
  }
  // Properties that the format cannot express; the runtimes skip attributes that they do not know.
  if (is_rooted(c.kind()) || c.root() != 0) out(" root=\"", c.root(), "\"");
  if (p.slots != xml_runtime_slots(p.protocol)) out(" slots=\"", p.slots, "\"");
  if (p.instances != 1) out(" instances=\"", p.instances, "\"");
  if (c.split() != 1) out(" split=\"", c.split(), "\"");
  out(">\n");
}

void print_line(Printer& out, std::uint32_t s, const XmlLine& line) {
  out("      <step s=\"", s, "\" type=\"");
  if (line.instruction == nullptr) {
    out("nop\" srcbuf=\"i\" srcoff=\"-1\" dstbuf=\"o\" dstoff=\"-1\" cnt=\"0");
  } else {
    const Instruction& i = *line.instruction;
    const OpcodeInfo& op = info(i.opcode);
    // An address that the step does not use repeats the one it does use.
    const bool src = op.reads_local;
    const bool dst = op.writes_local;
    out(op.xml, "\" srcbuf=\"", kBufferLetters[static_cast<std::size_t>(src ? i.src_buffer : i.dst_buffer)],
        "\" srcoff=\"", src ? i.src_chunk : i.dst_chunk, "\" dstbuf=\"",
        kBufferLetters[static_cast<std::size_t>(dst ? i.dst_buffer : i.src_buffer)], "\" dstoff=\"",
        dst ? i.dst_chunk : i.src_chunk, "\" cnt=\"", i.count);
  }
  if (line.has_dep) {
    out("\" depid=\"", line.dep.tb, "\" deps=\"", line.dep.step);
  } else {
    out("\" depid=\"-1\" deps=\"-1");
  }
  out(line.publishes ? "\" hasdep=\"1\"/>\n" : "\" hasdep=\"0\"/>\n");
}

void print_peer(Printer& out, std::uint32_t rank) {
  if (rank == kNoRank) {
    out("-1");
  } else {
    out(rank);
  }
}

// `p` has the steps of the rank at `place`.
Status print_rank(Printer& out, const Program& p, std::uint32_t place, std::uint32_t rank, XmlRankLayout& layout) {
  GC3_CHECK(layout.lay_out(p, place));
  const model::Collective& c = p.collective;
  out("  <gpu id=\"", rank, "\" i_chunks=\"", layout.uses_input ? c.input_chunks(rank) : 0, "\" o_chunks=\"",
      layout.uses_output ? c.output_chunks(rank) : 0, "\" s_chunks=\"", p.ranks[place].scratch_chunks, "\"");
  const auto tbs = p.tbs(place);
  if (tbs.empty()) {
    out("/>\n");
    return {};
  }
  out(">\n");
  for (std::uint32_t t = 0; t < tbs.size(); ++t) {
    out("    <tb id=\"", t, "\" send=\"");
    print_peer(out, tbs[t].send_peer);
    out("\" recv=\"");
    print_peer(out, tbs[t].recv_peer);
    out("\" chan=\"", tbs[t].channel, "\"");
    const std::uint32_t first = layout.first_line[t];
    const std::uint32_t end = layout.first_line[t + 1];
    if (first == end) {
      out("/>\n");
      continue;
    }
    out(">\n");
    for (std::uint32_t k = first; k < end; ++k) print_line(out, k - first, layout.lines[k]);
    out("    </tb>\n");
  }
  out("  </gpu>\n");
  return {};
}

Status print_ranks(Printer& out, const Program& p) {
  XmlRankLayout layout;
  for (std::uint32_t r = 0; r < p.ranks.size(); ++r) GC3_CHECK(print_rank(out, p, r, r, layout));
  return {};
}

// Makes the steps of one rank after the other.
Status print_ranks(Printer& out, const ClassProgram& p) {
  XmlRankLayout layout;
  for (std::uint32_t r = 0; r < p.ranks(); ++r) {
    GC3_ASSIGN(const Program own, expand(p, std::array{r}));
    GC3_CHECK(print_rank(out, own, 0, r, layout));
  }
  return {};
}

// Properties for which the runtime has no attribute, or no room.
Status check_sayable(const Program& p, const XmlTarget& target) {
  const auto over = [&](std::size_t has, const std::string& what, std::size_t limit) {
    return Diagnostic(ErrorCode::TargetLimit, "the program has " + std::to_string(has) + " " + what +
                                                  ", the limit of " + std::string(target.title) + " is " +
                                                  std::to_string(limit));
  };
  const std::size_t name = escape_attribute(p.name).size();
  if (name > kXmlMaxName) return over(name, "bytes in its name as XML", kXmlMaxName);
  const std::uint32_t slots = xml_runtime_slots(p.protocol);
  if (p.slots <= slots) return {};
  return over(p.slots, "FIFO slots with protocol " + std::string(name_of(p.protocol)), slots);
}

// Reads the text as the runtime would.
Status check_written(const std::string& text, const XmlTarget& target) {
  const std::string origin;
  XmlTokens tokens(text, origin, true);
  const auto load = [&]() -> Status {
    GC3_ASSIGN(XmlDocument doc, parse_xml_document(tokens));
    GC3_CHECK(check_loadable(doc, tokens, target));
    return rewrite_as_executed(doc, tokens, target);
  };
  Status loaded = load();
  if (!loaded.ok()) loaded.error().where = {};  // the user does not see this text
  return loaded;
}

// `p`: the program, or the rank of it that stands for all.
template <class Ranks>
Result<std::string> write(const Ranks& program, const Program& p, const XmlWriteOptions& options) {
  GC3_CHECK(check_plain(p, "MSCCL XML"));
  const CollectiveKind kind = p.collective.kind();
  const std::string_view collective = collective_name(kind, options.dialect);
  if (collective.empty()) {
    return Diagnostic(ErrorCode::TargetLimit, "the dialect '" + std::string(kXmlDialectNames[1]) +
                                                  "' has no name for the collective '" +
                                                  std::string(p.collective.name()) + "'");
  }
  if (p.name.find('\0') != std::string::npos) {
    return Diagnostic(ErrorCode::BadArgument,
                      "the program's name holds a NUL character, which XML has no way to write");
  }
  if (options.target != nullptr) GC3_CHECK(check_sayable(p, *options.target));
  Printer out;
  out.str().reserve(512 + p.instructions.size() * 128);
  print_algo(out, p, collective, options);
  GC3_CHECK(print_ranks(out, program));
  out("</algo>\n");
  if (options.target != nullptr) GC3_CHECK(check_written(out.str(), *options.target));
  return std::move(out.str());
}

}  // namespace

Result<std::string> write_xml(const Program& p, const XmlWriteOptions& options) { return write(p, p, options); }

Result<std::string> write_xml(const ClassProgram& p, const XmlWriteOptions& options) {
  return write(p, p.representative, options);
}

}  // namespace gc3::ir
