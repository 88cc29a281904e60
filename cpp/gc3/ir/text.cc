#include "gc3/ir/text.h"

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "gc3/base/text.h"
#include "gc3/ir/printer.h"

namespace gc3::ir {
namespace {

constexpr std::array<std::string_view, 3> kShortBuffers = {"in", "out", "sc"};

void print_custom(Printer& out, const model::CustomCollective& data) {
  std::uint64_t slot = 0;
  for (std::uint32_t r = 0; r < data.input_chunks.size(); ++r) {
    out("  rank ", r, " in ", data.input_chunks[r], " out ", data.output_chunks[r]);
    if (data.alias[r].has_value()) out(" alias ", *data.alias[r]);
    out("\n");
    for (std::uint32_t i = 0; i < data.output_chunks[r]; ++i, ++slot) {
      if (data.begin[slot] == data.begin[slot + 1]) continue;
      out("    out[", i, "] =");
      for (std::uint64_t t = data.begin[slot]; t < data.begin[slot + 1]; ++t) {
        out(t == data.begin[slot] ? " " : " + ");
        print_term(out, data.terms[t]);
      }
      out("\n");
    }
  }
}

void print_step(Printer& out, const Program& p, const Instruction& i) {
  // An instruction that is not one of the program has no groups.
  const Instruction* first = p.instructions.data();
  const bool known = !std::less<>()(&i, first) && std::less<>()(&i, first + p.switched.size());
  const Switched groups = known ? p.switched[static_cast<std::size_t>(&i - first)] : Switched();
  const OpcodeInfo& op = info(i.opcode);
  out(text_name(i.opcode));
  if (op.reads_local) out(" ", text_name(i.src_buffer), "[", i.src_chunk, "]");
  if (op.writes_local) out(" -> ", text_name(i.dst_buffer), "[", i.dst_chunk, "]");
  if (i.opcode == Opcode::apply) {
    print_operands(out, p, p.compute.applications[i.src_chunk]);
  } else if (const std::uint32_t usual = i.opcode == Opcode::nop ? 0 : 1; i.count != usual) {
    out(" x", i.count);
  }
  for (std::uint32_t d = 0; d < i.dep_count; ++d) {
    const Dependency& on = p.dependencies[i.dep_begin + d];
    out(d == 0 ? " after (" : ", ", on.tb, ":", on.step);
  }
  if (i.dep_count != 0) out(")");
  if (i.has_dependents != 0) out(" signals");
  if (groups.multicast != kNone) out(" multicast ", groups.multicast);
  if (groups.reduction != kNone) out(" reduction ", groups.reduction);
}

}  // namespace

void print_quoted(Printer& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out("\"");
  while (!text.empty()) {
    std::size_t bytes = 1;  // of the next character
    while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xc0U) == 0x80U) ++bytes;
    const std::string_view character = text.substr(0, bytes);
    text.remove_prefix(bytes);
    if (character == "\"" || character == "\\") out("\\");
    if (shown(character) == character) {
      out(character);
      continue;
    }
    for (const char c : character) {
      const auto byte = static_cast<unsigned char>(c);
      out("\\x", kHex.substr(byte >> 4U, 1), kHex.substr(byte & 15U, 1));
    }
  }
  out("\"");
}

void print_title(Printer& out, std::string_view word, std::string_view name, const model::Collective& c) {
  out(word, " ");
  print_quoted(out, name);
  out(" version 1\ncollective ", name_of(c.kind()));
  if (c.custom_data() != nullptr) {
    out(" ");
    print_quoted(out, c.custom_data()->name);
  }
  out(" ranks ", c.ranks(), " chunks ", c.chunks());
  if (c.split() != 1) out(" split ", c.split());
  if (c.root() != 0) out(" root ", c.root());
  out(c.in_place() ? " in place\n" : "\n");
  if (c.custom_data() == nullptr) return;
  print_tensors(out, *c.custom_data());
  print_custom(out, *c.custom_data());
}

std::string_view text_name(model::Buffer buffer) { return kShortBuffers[static_cast<std::size_t>(buffer)]; }

std::string to_text(const Program& program) {
  Printer out;
  out.str().reserve(256 + program.instructions.size() * 48);
  print_title(out, "program", program.name, program.collective);
  out("protocol ", name_of(program.protocol), " instances ", program.instances, " slots ", program.slots, "\n");
  print_lengths(out, program.compute.lengths);
  for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
    out("\nrank ", r);
    if (program.ranks[r].scratch_chunks != 0) out(" scratch ", program.ranks[r].scratch_chunks);
    out("\n");
    std::uint32_t t = 0;
    for (const Threadblock& tb : program.tbs(r)) {
      out("  tb ", t++, " channel ", tb.channel);
      if (tb.send_peer != kNoRank) out(" send ", tb.send_peer);
      if (tb.recv_peer != kNoRank) out(" recv ", tb.recv_peer);
      out("\n");
      std::uint32_t s = 0;
      for (const Instruction& i : program.steps(tb)) {
        out("    ", s++, " ");
        print_step(out, program, i);
        out("\n");
      }
    }
  }
  return std::move(out.str());
}

std::string to_text(const Program& program, const Instruction& instruction) {
  Printer out;
  print_step(out, program, instruction);
  return std::move(out.str());
}

}  // namespace gc3::ir
