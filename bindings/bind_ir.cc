#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <span>

#include "convert.h"
#include "gc3/base/errors/common.h"
#include "gc3/ir/blocks.h"
#include "gc3/ir/file.h"
#include "gc3/ir/forms.h"
#include "gc3/ir/image.h"
#include "gc3/ir/program.h"
#include "gc3/ir/text.h"
#include "gc3/ir/xml_layout.h"
#include "gc3/ir/xml_read.h"
#include "gc3/ir/xml_write.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

using ir::Program;

nb::object optional_rank(std::uint32_t rank) { return rank == ir::kNoRank ? nb::none() : nb::cast(rank); }

nb::object operand(bool used, model::Buffer buffer, std::uint32_t chunk) {
  if (!used) return nb::none();
  nb::dict place;
  place["buffer"] = name_of(buffer);
  place["chunk"] = chunk;
  return place;
}

nb::dict step_dict(const Program& p, const ir::Instruction& i) {
  const ir::OpcodeInfo& op = info(i.opcode);
  nb::list deps;
  for (const ir::Dependency& d : p.deps(i)) deps.append(nb::make_tuple(d.tb, d.step));
  nb::dict step;
  step["opcode"] = op.name;
  step["src"] = operand(op.reads_local, i.src_buffer, i.src_chunk);
  step["dst"] = operand(op.writes_local, i.dst_buffer, i.dst_chunk);
  step["count"] = i.count;
  if (i.opcode == ir::Opcode::apply) {
    step["operation"] = p.collective.custom_data()->operations[p.compute.applications[i.src_chunk].operation];
    nb::list reads;
    for (const ir::Operand& o : p.compute.reads(i)) reads.append(operand(true, o.buffer, o.chunk));
    nb::list writes;
    for (const ir::Operand& o : p.compute.writes(i)) writes.append(operand(true, o.buffer, o.chunk));
    step["reads"] = reads;
    step["writes"] = writes;
  }
  step["deps"] = deps;
  if (p.source.known()) {
    const std::uint32_t line = p.source.line_of[static_cast<std::size_t>(&i - p.instructions.data())];
    step["line"] = line == kNone ? nb::none() : nb::cast(line);
  }
  if (!p.switched.empty()) {
    const ir::Switched& groups = p.switched[static_cast<std::size_t>(&i - p.instructions.data())];
    if (groups.multicast != kNone) step["multicast"] = groups.multicast;
    if (groups.reduction != kNone) step["reduction"] = groups.reduction;
  }
  return step;
}

nb::dict threadblock_dict(const Program& p, const ir::Threadblock& t) {
  nb::list steps;
  for (const ir::Instruction& i : p.steps(t)) steps.append(step_dict(p, i));
  nb::dict tb;
  tb["send_peer"] = optional_rank(t.send_peer);
  tb["recv_peer"] = optional_rank(t.recv_peer);
  tb["channel"] = t.channel;
  tb["steps"] = steps;
  return tb;
}

nb::list threadblocks_of(const Program& p, std::uint32_t rank) {
  if (rank >= p.ranks.size()) {
    throw DiagnosticError(
        {ErrorCode::RankOutOfRange, "rank " + std::to_string(rank) + " of " + std::to_string(p.ranks.size())});
  }
  nb::list threadblocks;
  for (const ir::Threadblock& t : p.tbs(rank)) threadblocks.append(threadblock_dict(p, t));
  return threadblocks;
}

// Per application of a compute operation: its name, how many of its operands it reads, and the number of the length of
// each operand.
std::vector<std::tuple<std::string, std::uint32_t, std::vector<std::uint32_t>>> applications(const Program& p) {
  std::vector<std::tuple<std::string, std::uint32_t, std::vector<std::uint32_t>>> found;
  if (p.compute.applications.empty()) return found;
  const ir::Blocks blocks = unwrap(ir::trace_blocks(p));
  for (std::size_t k = 0; k < p.instructions.size(); ++k) {
    if (p.instructions[k].opcode != ir::Opcode::apply) continue;
    const ir::Application& a = p.compute.applications[p.instructions[k].src_chunk];
    const auto first = blocks.pieces.begin() + blocks.first[k];
    found.emplace_back(p.collective.custom_data()->operations[a.operation], a.reads,
                       std::vector<std::uint32_t>(first, first + p.instructions[k].count));
  }
  return found;
}

// The lines of the user's code: file, line, and the index of the line that called its function.
nb::list source_lines(const Program& p) {
  nb::list lines;
  for (const ir::Source::Line& line : p.source.lines) {
    lines.append(nb::make_tuple(p.source.files[line.file], line.line,
                                line.caller == kNone ? nb::none() : nb::cast(line.caller)));
  }
  return lines;
}

nb::typed<nb::dict, nb::str, nb::any> as_dict(const Program& p) {
  nb::dict collective;
  collective["name"] = p.collective.name();
  collective["ranks"] = p.collective.ranks();
  collective["chunks"] = p.collective.chunks();
  collective["split"] = p.collective.split();
  collective["root"] = p.collective.root();
  collective["in_place"] = p.collective.in_place();
  nb::list ranks;
  for (std::uint32_t r = 0; r < p.ranks.size(); ++r) {
    nb::dict rank;
    rank["scratch_chunks"] = p.ranks[r].scratch_chunks;
    rank["threadblocks"] = threadblocks_of(p, r);
    ranks.append(rank);
  }
  nb::dict out;
  out["name"] = p.name;
  out["collective"] = collective;
  out["protocol"] = name_of(p.protocol);
  out["instances"] = p.instances;
  out["slots"] = p.slots;
  out["ranks"] = ranks;
  if (p.source.known()) out["lines"] = source_lines(p);
  return out;
}

std::vector<std::uint32_t> threadblocks_per_rank(const Program& p) {
  std::vector<std::uint32_t> counts;
  for (const ir::RankProgram& r : p.ranks) counts.push_back(r.tb_count);
  return counts;
}

std::vector<std::size_t> instructions_per_rank(const Program& p) {
  std::vector<std::size_t> counts(p.ranks.size());
  for (std::uint32_t r = 0; r < counts.size(); ++r) {
    for (const ir::Threadblock& t : p.tbs(r)) counts[r] += t.instruction_count;
  }
  return counts;
}

// The threadblocks that send: rank, threadblock, receiver, channel, first step that sends.
nb::list sends(const Program& p) {
  nb::list found;
  for (std::uint32_t r = 0; r < p.ranks.size(); ++r) {
    const auto tbs = p.tbs(r);
    for (std::size_t tb = 0; tb < tbs.size(); ++tb) {
      const auto steps = p.steps(tbs[tb]);
      const auto first = std::ranges::find_if(steps, [](const ir::Instruction& i) { return info(i.opcode).sends; });
      if (first == steps.end()) continue;
      found.append(nb::make_tuple(r, tb, tbs[tb].send_peer, tbs[tb].channel, first - steps.begin()));
    }
  }
  return found;
}

nb::bytes to_bytes(const Program& p, bool source) {
  const std::vector<std::byte> image = write_image(p, source);
  return nb::bytes(image.data(), image.size());
}

Program from_bytes(const nb::bytes& image) {
  return unwrap(ir::read_image({static_cast<const std::byte*>(image.data()), image.size()}));
}

using Text = std::variant<std::string_view, nb::bytes>;

std::string_view view(std::string_view text) { return text; }
std::string_view view(const nb::bytes& text) { return {text.c_str(), text.size()}; }

const ir::XmlTarget* target_of(std::optional<std::string_view> name) {
  if (!name) return nullptr;
  const ir::XmlTarget* const found = ir::find_xml_target(*name);
  if (found == nullptr) throw DiagnosticError({ErrorCode::BadArgument, "no target '" + std::string(*name) + "'"});
  return found;
}

ir::ProgramFile read_xml(const Text& text, const std::string& origin, std::optional<model::Collective> collective,
                         std::optional<bool> in_place, std::optional<std::string_view> runtime) {
  const auto bytes = std::visit([](const auto& t) { return view(t); }, text);
  return unwrap(ir::read_xml(bytes, origin, {std::move(collective), {}, in_place, target_of(runtime)}));
}

using NamedOrGiven = std::variant<std::string, model::Collective>;

ir::ProgramFile load_file(const std::string& path, const NamedOrGiven& collective, std::optional<bool> in_place,
                          std::optional<std::string_view> runtime) {
  ir::XmlReadOptions options{.in_place = in_place, .runtime = target_of(runtime), .keep_classes = true};
  if (const auto* name = std::get_if<std::string>(&collective)) options.coll = *name;
  if (const auto* given = std::get_if<model::Collective>(&collective)) options.collective = *given;
  return unwrap(long_work([&] { return ir::load_any(path, options); }));
}

template <class P>
std::string to_xml(const P& p, std::string_view dialect, std::optional<std::string_view> target,
                   std::uint64_t min_bytes, std::uint64_t max_bytes) {
  const auto spelled = model::parse_name<ir::XmlDialect>(ir::kXmlDialectNames, dialect);
  if (!spelled)
    throw DiagnosticError(
        {ErrorCode::BadArgument, "dialect '" + std::string(dialect) + "'; expected 'msccl' or 'rccl'"});
  const ir::XmlTarget* const limits = target_of(target);
  if (limits != nullptr && limits->dialect != *spelled) {
    throw DiagnosticError({ErrorCode::BadArgument, "the target '" + std::string(*target) +
                                                       "' does not read the dialect " + std::string(dialect)});
  }
  return unwrap(ir::write_xml(p, {*spelled, limits, min_bytes, max_bytes}));
}

template <class P>
void save_xml(const P& p, const std::string& path, std::string_view dialect, std::optional<std::string_view> target,
              std::uint64_t min_bytes, std::uint64_t max_bytes) {
  const std::string xml = to_xml(p, dialect, target, min_bytes, max_bytes);
  unwrap(ir::write_file(path, std::as_bytes(std::span(xml))));
}

}  // namespace

void bind_ir(nb::module_& m) {
  nb::class_<ir::OpcodeInfo>(m, "OpcodeInfo", "A row of the opcode table.")
      .def_ro("name", &ir::OpcodeInfo::name)
      .def_ro("xml", &ir::OpcodeInfo::xml, "How the exchange format spells it.")
      .def_ro("receives", &ir::OpcodeInfo::receives)
      .def_ro("sends", &ir::OpcodeInfo::sends)
      .def_ro("reduces", &ir::OpcodeInfo::reduces)
      .def_ro("reads_local", &ir::OpcodeInfo::reads_local)
      .def_ro("writes_local", &ir::OpcodeInfo::writes_local)
      .def_ro("doc", &ir::OpcodeInfo::doc);
  m.def(
      "read_file",
      [](const std::string& path, std::size_t most) {
        const std::vector<std::byte> bytes = unwrap(long_work([&] { return ir::read_file(path, most); }));
        return nb::bytes(bytes.data(), bytes.size());
      },
      "path"_a, "most"_a, "The bytes of a file, at most `most`; pipes are read to their end.");
  m.def(
      "opcodes", [] { return std::vector<ir::OpcodeInfo>(std::begin(ir::kOpcodes), std::end(ir::kOpcodes)); },
      "The opcode table.");
  nb::class_<Program>(m, "Program", "The executable form of an algorithm: one list of threadblocks per rank.")
      .def_ro("name", &Program::name)
      .def_ro("collective", &Program::collective)
      .def_prop_ro("protocol", [](const Program& p) { return name_of(p.protocol); })
      .def_ro("instances", &Program::instances, "The factor by which the whole program was replicated.")
      .def_ro("slots", &Program::slots, "FIFO slots per connection that the schedule needs.")
      .def_prop_ro(
          "in_switch", [](const Program& p) { return !p.switched.empty(); },
          "Whether switches may carry some of its messages as one.")
      .def_prop_ro("rank_count", [](const Program& p) { return p.ranks.size(); })
      .def("applications", &applications,
           "Per application of a compute operation: its name, how many operands it reads, and the number of the length "
           "of each operand.")
      .def_prop_ro(
          "lengths", [](const Program& p) { return p.compute.lengths; },
          "The names of the lengths of chunks, of a program of named tensors.")
      .def_prop_ro("max_count", &Program::max_count, "The chunks of the longest message.")
      .def_prop_ro("threadblock_count", [](const Program& p) { return p.threadblocks.size(); })
      .def_prop_ro("instruction_count", [](const Program& p) { return p.instructions.size(); })
      .def_prop_ro("dependency_count", [](const Program& p) { return p.dependencies.size(); })
      .def_prop_ro("threadblocks_per_rank", &threadblocks_per_rank)
      .def_prop_ro("scratch_per_rank",
                   [](const Program& p) {
                     std::vector<std::uint32_t> chunks;
                     for (const ir::RankProgram& r : p.ranks) chunks.push_back(r.scratch_chunks);
                     return chunks;
                   })
      .def_prop_ro("instructions_per_rank", &instructions_per_rank)
      .def("to_text", nb::overload_cast<const Program&>(&ir::to_text), "The text form.")
      .def_static(
          "from_text",
          [](std::string_view text, const std::string& origin) { return unwrap(ir::parse_text(text, origin)); },
          "text"_a, "origin"_a = "<text>", "Reads the text form; `origin` names the file in errors.")
      .def(
          "save", [](const Program& p, const std::string& path) { unwrap(ir::save(p, path)); }, "path"_a,
          "Writes the binary image: readers of `path` see the old file or the new one.")
      .def(
          "save_text",
          [](const Program& p, const std::string& path) {
            const std::string text = ir::to_text(p);
            unwrap(ir::write_file(path, std::as_bytes(std::span(text))));
          },
          "path"_a, "Writes the text form: readers of `path` see the old file or the new one.")
      .def_static(
          "load", [](const std::string& path) { return unwrap(ir::load_any(path)).program; }, "path"_a,
          "Reads a file of any form: image, text or MSCCL XML.")
      .def(
          "to_xml", &to_xml<Program>, "dialect"_a = "msccl", "target"_a = nb::none(), "min_bytes"_a = 0,
          "max_bytes"_a = 0,
          "MSCCL XML in the dialect 'msccl' or 'rccl'. `target` ('msccl', 'azure', 'rccl') is the runtime whose limits "
          "must hold; None: no limits.")
      .def("save_xml", &save_xml<Program>, "path"_a, "dialect"_a = "msccl", "target"_a = nb::none(), "min_bytes"_a = 0,
           "max_bytes"_a = 0, "Writes what to_xml() gives: readers of `path` see the old file or the new one.")
      .def_static(
          "from_xml",
          [](const Text& text, const std::string& origin, std::optional<model::Collective> collective,
             std::optional<bool> in_place) {
            return read_xml(text, origin, std::move(collective), in_place, {}).program;
          },
          "text"_a, "origin"_a = "<xml>", "collective"_a = nb::none(), "in_place"_a = nb::none(),
          "Reads MSCCL XML. `collective` is what the program computes, if the file does not name it.")
      .def("to_bytes", &to_bytes, "source"_a = true,
           "The binary image, with the lines of the user's code or without; without them it is equal for equal "
           "programs.")
      .def_prop_ro("source_lines", &source_lines,
                   nb::for_getter(nb::sig("def source_lines(self) -> list[tuple[str, int, int | None]]")),
                   "The distinct lines of the user's code: file, line, and the index of the line that called its "
                   "function. Empty if unknown.")
      .def_prop_ro(
          "line_of", [](const Program& p) { return nb::bytes(p.source.line_of.data(), p.source.line_of.size() * 4); },
          "For each instruction, by rank, threadblock and step, the index of its line as 32 bits; 2**32 - 1: unknown.")
      .def_prop_ro(
          "first_steps",
          [](const Program& p) {
            std::vector<std::uint32_t> first;
            for (const ir::Threadblock& tb : p.threadblocks) first.push_back(tb.first_instruction);
            return first;
          },
          "For each threadblock, the number of its first instruction, counted over all ranks.")
      .def_static("from_bytes", &from_bytes, "image"_a)
      .def("__getstate__", [](const Program& p) { return to_bytes(p, true); })
      .def("__setstate__", [](Program& self, const nb::bytes& image) { new (&self) Program(from_bytes(image)); })
      .def("sends", &sends, nb::sig("def sends(self) -> list[tuple[int, int, int, int, int]]"),
           "The threadblocks that send: rank, threadblock, receiver, channel, first step that sends.")
      .def("threadblocks_of", &threadblocks_of, "rank"_a,
           nb::sig("def threadblocks_of(self, rank: int) -> list[dict[str, Any]]"),
           "The threadblocks of a rank as plain dicts, as in as_dict().")
      .def("as_dict", &as_dict, "The whole program as plain dicts and lists, for JSON.")
      .def(
          "__eq__", [](const Program& a, const Program& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  m.def("save_xml", &save_xml<ir::ClassProgram>, "program"_a, "path"_a, "dialect"_a = "msccl", "target"_a = nb::none(),
        "min_bytes"_a = 0, "max_bytes"_a = 0, "As Program.save_xml, of a program of which one rank stands for all.");
  nb::class_<ir::ProgramFile>(m, "ProgramFile",
                              "A program that was read from a file, and the calls for which the file allows it.")
      .def_ro("program", &ir::ProgramFile::program)
      .def_ro("classes", &ir::ProgramFile::classes, "Instead of it, if the file has one rank that stands for all.")
      .def_ro("in_place", &ir::ProgramFile::in_place)
      .def_ro("out_of_place", &ir::ProgramFile::out_of_place)
      .def_ro("min_bytes", &ir::ProgramFile::min_bytes)
      .def_ro("max_bytes", &ir::ProgramFile::max_bytes, "Of the whole buffer; 0: no limit given.");
  m.def("read_xml", &read_xml, "text"_a, "origin"_a = "<xml>", "collective"_a = nb::none(), "in_place"_a = nb::none(),
        "runtime"_a = nb::none(), "Reads MSCCL XML and its conditions of use; `runtime` as for load_file.");
  m.def("load_file", &load_file, "path"_a, "collective"_a = "", "in_place"_a = nb::none(), "runtime"_a = nb::none(),
        "Reads a file of any form and its conditions of use. For MSCCL XML, `collective` is what it implements, or a "
        "name "
        "to replace that in the file, and `in_place` chooses one of its uses. `runtime` ('msccl', 'azure', 'rccl') "
        "reads the file as that runtime "
        "does, and refuses what it refuses.");
  m.def(
      "is_xml", [](const std::string& path) { return ir::is_xml(unwrap(ir::read_file(path))); }, "path"_a,
      "Whether a file begins as XML does.");
  m.def("xml_chunks_per_loop", &ir::xml_chunks_per_loop, "collective"_a,
        "The number of chunks into which MSCCL XML divides the whole buffer of a collective.");
  m.def(
      "xml_targets",
      [] {
        nb::dict targets;
        for (const ir::XmlTarget& t : ir::kXmlTargets)
          targets[nb::cast(t.name)] = ir::kXmlDialectNames[static_cast<std::size_t>(t.dialect)];
        return nb::typed<nb::dict, nb::str, nb::str>(targets);
      },
      "The runtimes that read MSCCL XML, each with its dialect.");
}

}  // namespace gc3::bindings
