#include "gc3/ir/classes.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/files.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/base/interrupt.h"
#include "gc3/ir/printer.h"
#include "gc3/ir/text.h"
#include "gc3/ir/text_reader.h"

namespace gc3::ir {

const Region& ClassProgram::region(model::Buffer buffer, std::uint32_t chunk) const {
  const auto before = [](const std::pair<model::Buffer, std::uint32_t>& place, const Region& r) {
    return place < std::pair(r.buffer, r.begin);
  };
  return *std::prev(std::upper_bound(regions.begin(), regions.end(), std::pair(buffer, chunk), before));
}

std::uint32_t ClassProgram::moved(model::Buffer buffer, std::uint32_t chunk, std::uint32_t count,
                                  std::uint32_t by) const {
  const Region& in = region(buffer, chunk);
  return in.begin + symmetry.moved(in.axes, chunk - in.begin, count, by);
}

bool check_action(const ClassProgram& program, Findings& findings) {
  const auto malformed = [&](const std::string& why) { findings.add({ErrorCode::BadStructure, why}); };
  const Program& one = program.representative;
  if (one.ranks.size() != 1 || one.has_tensors() || !one.switched.empty()) {
    malformed("a program of one class has one rank and plain messages");
    return false;
  }
  std::size_t buffers = 0;
  bool ordered = true;
  for (std::size_t k = 0; k < program.regions.size(); ++k) {
    const Region& r = program.regions[k];
    const bool first = k == 0 || program.regions[k - 1].buffer != r.buffer;
    // What the collective requires is compared with the axes of its buffers, which therefore are one region each.
    ordered = ordered && (first ? static_cast<std::size_t>(r.buffer) == buffers++ && r.begin == 0
                                : r.buffer == model::Buffer::scratch && program.regions[k - 1].begin <= r.begin);
  }
  if (!ordered || buffers != model::kBufferNames.size()) {
    malformed("input and output are one region each, and those of scratch follow each other from 0 on");
    return false;
  }
  const auto axes_of = [&](model::Buffer b) { return program.region(b, 0).axes; };
  if (Status s = program.symmetry.check(one.collective, axes_of(model::Buffer::input), axes_of(model::Buffer::output));
      !s.ok()) {
    malformed(s.error().message);
    return false;
  }
  const model::Symmetry& g = program.symmetry;
  for (std::size_t k = 0; k < program.regions.size(); ++k) {
    const Region& region = program.regions[k];
    const bool last = k + 1 == program.regions.size() || program.regions[k + 1].buffer != region.buffer;
    const std::uint64_t size = region.buffer == model::Buffer::input    ? one.collective.input_chunks(0)
                               : region.buffer == model::Buffer::output ? one.collective.output_chunks(0)
                                                                        : one.ranks.front().scratch_chunks;
    const std::uint64_t end = last ? size : program.regions[k + 1].begin;
    std::uint64_t below = 1;
    bool fits = region.begin <= end;
    for (const model::Axis& axis : region.axes) {
      fits = fits && axis.coordinate < g.shape().size() && g.shape()[axis.coordinate] > 1 && axis.factor != 0 &&
             axis.factor % below == 0;
      if (fits) below = g.span(axis);
    }
    if (fits && (end - region.begin) % below == 0) continue;
    malformed("translations do not permute the chunks of " + std::string(model::name_of(region.buffer)));
    return false;
  }
  return true;
}

namespace {

Diagnostic too_large(const ClassProgram& program) {
  const Program& one = program.representative;
  return Diagnostic(ErrorCode::ProgramTooLarge,
                    "'" + one.name + "' has " + std::to_string(program.ranks()) + " ranks in one class of " +
                        std::to_string(one.instructions.size()) +
                        " steps: it can be compiled, proven and shown, but not be made for all ranks");
}

}  // namespace

Result<Program> expand(const ClassProgram& program, std::uint64_t most) {
  if (!program.representative.collective.can_split(1)) return too_large(program);
  std::vector<std::uint32_t> all(program.ranks());
  std::iota(all.begin(), all.end(), 0U);
  return expand(program, all, most);
}

Result<Program> expand(const ClassProgram& program, std::span<const std::uint32_t> ranks, std::uint64_t most) {
  const Program& one = program.representative;
  const std::uint64_t own = std::max({one.instructions.size(), one.threadblocks.size(), one.dependencies.size()});
  if (own * ranks.size() > most || std::uint64_t{one.ranks.front().scratch_chunks} * ranks.size() > kMaxScratchChunks) {
    return too_large(program);
  }
  Program out = one;
  out.ranks.clear();
  out.threadblocks.clear();
  out.instructions.clear();
  out.dependencies.clear();
  out.source.line_of.clear();
  Breath breathe;
  for (const std::uint32_t r : ranks) {
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

Result<Program> of_all_ranks(ClassProgram read) {
  if (read.symmetry.exists()) return expand(read);
  return std::move(read.representative);
}

bool runs_alone(const ClassProgram& read) {
  constexpr std::uint64_t kFew = std::uint64_t{1} << 18U;  // instructions, made in some 10 ms
  return read.symmetry.exists() && std::uint64_t{read.representative.instructions.size()} * read.ranks() > kFew;
}

void print_symmetry(Printer& out, const ClassProgram& program) {
  out("symmetry");
  for (const std::uint32_t values : program.symmetry.shape()) out(" ", values);
  out("\n");
  for (const Region& r : program.regions) {
    out("region ", text_name(r.buffer), "[", r.begin, "]");
    for (const model::Axis& axis : r.axes) out(" ", axis.coordinate, ":", axis.factor);
    out("\n");
  }
}

std::string to_text(const ClassProgram& program) {
  std::string text = to_text(program.representative);
  Printer own;
  print_symmetry(own, program);
  text.insert(text.find("\nrank "), own.str());
  return text;
}

namespace {

constexpr std::size_t kMostCoordinates = 32;  // as of gc3.me()

class SymmetryReader : private TextReader {
 public:
  using TextReader::TextReader;

  Status parse(ClassProgram& program) {
    next();
    GC3_CHECK(parse_symmetry(program));
    return line_.expect_end();
  }
};

}  // namespace

Status parse_symmetry(std::string_view text, ClassProgram& program) {
  const std::string origin;
  const auto wrong = [](const std::string& how) { return Diagnostic(ErrorCode::BadText, "its symmetry is " + how); };
  if (const Status read = SymmetryReader(text, origin).parse(program); !read.ok())
    return wrong("malformed: " + read.error().message);
  Findings findings(1);
  if (!program.symmetry.exists()) return wrong("missing");
  if (!check_action(program, findings)) return wrong("none: " + findings.take().front().message);
  Printer usual;
  print_symmetry(usual, program);
  return usual.str() == text ? Status() : wrong("not in its usual form");
}

Status TextReader::parse_symmetry(ClassProgram& program) {
  const Line start = line_;
  if (!line_.accept("symmetry")) return {};
  std::vector<std::uint32_t> shape;
  while (!line_.at_end() && shape.size() < kMostCoordinates) {
    GC3_CHECK(line_.number(shape.emplace_back(), "a number of values"));
  }
  GC3_CHECK(line_.expect_end());
  Result<model::Symmetry> made = model::Symmetry::of(std::move(shape));
  if (!made.ok()) return start.problem(made.error().message);
  if (!made.value().exists()) return start.expected("the numbers of values of coordinates");
  program.symmetry = std::move(made).value();
  for (next(); line_.accept("region"); next()) {
    Region& region = program.regions.emplace_back();
    GC3_CHECK(parse_place(line_, region.buffer, region.begin));
    while (!line_.at_end()) {
      model::Axis& axis = region.axes.emplace_back();
      GC3_CHECK(line_.number(axis.coordinate, "a coordinate"));
      GC3_CHECK(line_.expect(":"));
      GC3_CHECK(line_.number(axis.factor, "a number of chunks"));
    }
  }
  return {};
}

}  // namespace gc3::ir
