// The lines of the text form that say what a program computes; the image contains them, too.
#include <algorithm>
#include <string>
#include <utility>

#include "gc3/ir/printer.h"
#include "gc3/ir/text.h"
#include "gc3/ir/text_reader.h"

namespace gc3::ir {

// Lines of names, before the postcondition is checked: a longer one is no name.
constexpr std::size_t kMostNames = 1U << 16U;

void print_term(Printer& out, const model::InputChunk& term) {
  term.rank == model::kComputed ? out("=", term.index) : out(term.rank, ":", term.index);
}

void print_tensors(Printer& out, const model::CustomCollective& data) {
  for (const model::Tensor& t : data.tensors) {
    out("  tensor ");
    print_quoted(out, t.name);
    out(" ", text_name(t.buffer), " length ", t.length, " chunks");
    for (const std::uint32_t chunks : t.chunks) out(" ", chunks);
    out("\n");
  }
  for (std::size_t k = 0; k < data.operations.size(); ++k) {
    out("  operation ");
    print_quoted(out, data.operations[k]);
    for (const auto& [name, operands] : model::kProperties) {
      const std::uint32_t of = data.properties[k].*operands;
      if (of == 0) continue;
      out(" ", name);
      if (of == UINT32_MAX) out(" all");
      for (std::uint32_t i = 0; i < model::kPropertyOperands && of != UINT32_MAX; ++i) {
        if (model::covers(of, i)) out(" ", i);
      }
    }
    out("\n");
  }
  for (std::size_t k = 0; k < data.calls.size(); ++k) {
    const model::TermCall& call = data.calls[k];
    out("  call ", k, " ");
    print_quoted(out, data.operations[call.operation]);
    out(" ", call.result);
    if (!call.pieces.empty()) out(call.columns ? " columns " : " rows ", call.part);
    out(" of ");
    std::size_t operand = 0;
    std::size_t next = call.pieces.empty() ? 1 : call.pieces.front();  // the first argument of the next operand
    for (std::size_t a = 0; a < call.arguments.size(); ++a) {
      const std::vector<model::InputChunk>& argument = call.arguments[a];
      if (a == next) {
        next += call.pieces.empty() ? 1 : call.pieces[++operand];
        out(", ");
      } else if (a != 0) {
        out(" | ");
      }
      for (const model::InputChunk& term : argument) {
        if (&term != &argument.front()) out(" + ");
        print_term(out, term);
      }
    }
    out("\n");
  }
}

void print_lengths(Printer& out, const std::vector<std::string>& lengths) {
  if (lengths.empty()) return;
  out("lengths");
  for (const std::string& name : lengths) {
    out(" ");
    print_quoted(out, name);
  }
  out("\n");
}

void print_operands(Printer& out, const Program& p, const Application& a) {
  out(" ");
  print_quoted(out, p.collective.custom_data()->operations[a.operation]);
  for (const Operand& o : p.compute.reads(a)) out(" ", text_name(o.buffer), "[", o.chunk, "]");
  out(" ->");
  for (const Operand& o : p.compute.writes(a)) out(" ", text_name(o.buffer), "[", o.chunk, "]:", o.length);
}

Status TextReader::parse_term(Line& line, model::InputChunk& term) {
  if (line.accept("=")) {
    term.rank = model::kComputed;
    return line.number(term.index, "the number of a call");
  }
  GC3_CHECK(parse_number(line, term.rank, "a rank"));
  GC3_CHECK(line.expect(":"));
  return line.number(term.index, "a chunk");
}

Status TextReader::parse_operation(Line& line, const std::vector<std::string>& names, std::uint32_t& operation) {
  const Line start = line;
  std::string name;
  GC3_CHECK(line.quoted(name));
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return start.problem("there is no operation '" + name + "'");
  operation = static_cast<std::uint32_t>(found - names.begin());
  return {};
}

Status TextReader::parse_properties(Line& line, model::Properties& properties) {
  while (!line.at_end()) {
    const Line start = line;
    const std::string_view word = line.word();
    const auto known = std::ranges::find(model::kProperties, word, [](const auto& row) { return row.first; });
    if (known == model::kProperties.end()) return start.expected("linear, rowwise or elementwise");
    std::uint32_t& operands = properties.*(known->second);
    if (line.accept("all")) {
      operands = UINT32_MAX;
      continue;
    }
    const auto number_follows = [&] {
      Line ahead = line;
      const std::string_view next = ahead.word();
      return !next.empty() && next.front() >= '0' && next.front() <= '9';
    };
    do {
      std::uint32_t operand = 0;
      GC3_CHECK(line.number(operand, "the number of an operand"));
      if (operand >= model::kPropertyOperands) return start.expected("operands below 32");
      operands |= 1U << operand;
    } while (number_follows());
  }
  return {};
}

Status TextReader::parse_tensors(model::CustomCollective& data) {
  while (line_.accept("tensor")) {
    model::Tensor& t = data.tensors.emplace_back();
    GC3_CHECK(line_.quoted(t.name));
    if (line_.accept("out")) {
      t.buffer = model::Buffer::output;
    } else {
      GC3_CHECK(line_.expect("in"));
    }
    GC3_CHECK(line_.expect("length"));
    GC3_CHECK(line_.number(t.length, "the number of a length"));
    GC3_CHECK(line_.expect("chunks"));
    while (!line_.at_end()) GC3_CHECK(line_.number(t.chunks.emplace_back(), "a number of chunks"));
    if (data.tensors.size() > kMostNames) return line_.problem("more tensors than a collective may have");
    next();
  }
  while (line_.accept("operation")) {
    GC3_CHECK(line_.quoted(data.operations.emplace_back()));
    GC3_CHECK(parse_properties(line_, data.properties.emplace_back()));
    if (data.operations.size() > kMostNames) return line_.problem("more operations than a collective may have");
    next();
  }
  while (line_.accept("call")) {
    GC3_CHECK(parse_index(line_, data.calls.size(), "call"));
    model::TermCall& call = data.calls.emplace_back();
    GC3_CHECK(parse_operation(line_, data.operations, call.operation));
    GC3_CHECK(line_.number(call.result, "the number of a result"));
    call.columns = line_.accept("columns");
    const bool whole = call.columns || line_.accept("rows");
    if (whole) GC3_CHECK(line_.number(call.part, "the number of a part"));
    GC3_CHECK(line_.expect("of"));
    do {
      std::uint32_t pieces = 0;
      do {
        ++pieces;
        std::vector<model::InputChunk>& argument = call.arguments.emplace_back();
        do {
          GC3_CHECK(parse_term(line_, argument.emplace_back()));
        } while (line_.accept("+"));
      } while (whole && line_.accept("|"));
      if (whole) call.pieces.push_back(pieces);
    } while (line_.accept(","));
    GC3_CHECK(line_.expect_end());
    next();
  }
  return {};
}

Status TextReader::parse_lengths(std::vector<std::string>& lengths) {
  if (!line_.accept("lengths")) return {};
  while (!line_.at_end()) {
    GC3_CHECK(line_.quoted(lengths.emplace_back()));
    if (lengths.size() > kMostNames) return line_.problem("more lengths than a program may have");
  }
  next();
  return {};
}

Status TextReader::parse_operands(Line& line, const std::vector<std::string>& operations, Compute& compute,
                                  Instruction& step) {
  Application& a = compute.applications.emplace_back();
  a.first = static_cast<std::uint32_t>(compute.operands.size());
  GC3_CHECK(parse_operation(line, operations, a.operation));
  while (!line.accept("->")) {
    Operand& o = compute.operands.emplace_back();
    GC3_CHECK(parse_place(line, o.buffer, o.chunk));
    ++a.reads;
  }
  const auto place_follows = [&] {
    Line ahead = line;
    return ahead.accept("in") || ahead.accept("out") || ahead.accept("sc");
  };
  do {
    Operand& o = compute.operands.emplace_back();
    GC3_CHECK(parse_place(line, o.buffer, o.chunk));
    GC3_CHECK(line.expect(":"));
    GC3_CHECK(line.number(o.length, "the number of a length"));
    ++a.writes;
  } while (place_follows());
  step.src_chunk = static_cast<std::uint32_t>(compute.applications.size() - 1);
  step.count = a.reads + a.writes;
  return {};
}

std::string compute_text(const Program& program) {
  Printer out;
  print_tensors(out, *program.collective.custom_data());
  print_lengths(out, program.compute.lengths);
  for (const Application& a : program.compute.applications) {
    out("apply");
    print_operands(out, program, a);
    out("\n");
  }
  return std::move(out.str());
}

namespace {

class ComputeReader : private TextReader {
 public:
  using TextReader::TextReader;

  Status parse(model::CustomCollective& data, Compute& compute) {
    next();
    GC3_CHECK(parse_tensors(data));
    GC3_CHECK(parse_lengths(compute.lengths));
    while (line_.accept("apply")) {
      Instruction step;
      GC3_CHECK(parse_operands(line_, data.operations, compute, step));
      GC3_CHECK(line_.expect_end());
      next();
    }
    return line_.expect_end();
  }
};

}  // namespace

Status parse_compute(std::string_view text, model::CustomCollective& data, Compute& compute) {
  const std::string origin;
  return ComputeReader(text, origin).parse(data, compute);
}

}  // namespace gc3::ir
