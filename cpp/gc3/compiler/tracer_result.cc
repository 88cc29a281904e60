// The end of a trace: what the outputs hold, against what the collective requires.
#include <map>
#include <utility>

#include "gc3/base/errors/language.h"
#include "gc3/base/interrupt.h"
#include "gc3/compiler/made.h"
#include "gc3/compiler/tracer.h"

namespace gc3::compiler {
namespace {

using model::Buffer;
using model::Place;
using model::Terms;

// "r0[1]+r2[1]", shortened when long.
std::string spell(const Terms& terms, const model::Calls& calls) {
  constexpr std::size_t kShown = 8;
  std::string out;
  std::size_t shown = 0;
  for (const auto& [input, times] : terms) {
    if (shown++ == kShown) return out + " + " + std::to_string(terms.size() - kShown) + " more";
    if (!out.empty()) out += " + ";
    const std::optional<std::string> name = calls.name(input);
    out += model::times_text(times);
    out += name ? *name : "input[" + std::to_string(input.index) + "] of rank " + std::to_string(input.rank);
  }
  return out;
}

}  // namespace

// Follows the data of one slot backwards through the operations to its inputs. None if there are too many.
std::optional<Terms> Tracer::held(const Range& range) const {
  constexpr std::size_t kMost = std::size_t{1} << 16U;
  std::map<std::tuple<BufferIndex, std::uint32_t, std::uint32_t>, std::uint64_t> wanted;
  wanted[{range.buffer, range.rank, range.index}] = 1;
  for (std::size_t i = trace_.ops.size(); i-- > 0;) {
    const ChunkOp& op = trace_.ops[i];
    auto it = wanted.lower_bound({op.dst.buffer, op.dst.rank, op.dst.index});
    while (it != wanted.end()) {
      const auto [buffer, rank, index] = it->first;
      if (buffer != op.dst.buffer || rank != op.dst.rank || index >= op.dst.index + op.count) break;
      const std::uint64_t times = it->second;
      it = op.kind == OpKind::copy ? wanted.erase(it) : std::next(it);
      std::uint64_t& sum = wanted[{op.src.buffer, op.src.rank, op.src.index + (index - op.dst.index)}];
      sum = model::plus_times(sum, times);
    }
    if (wanted.size() > kMost) return std::nullopt;
  }
  Terms terms;
  for (std::uint32_t r = 0; r < trace_.ranks(); ++r) {
    for (std::uint32_t i = 0; i < trace_.collective.input_chunks(r); ++i) {
      const Place p = trace_.collective.canonical(r, {Buffer::input, i});
      const auto found = wanted.find({static_cast<BufferIndex>(p.buffer), r, p.index});
      if (found != wanted.end()) terms[{r, i}] = found->second;
    }
  }
  return terms;
}

Diagnostic Tracer::unmet(std::uint32_t rank, std::uint32_t index) const {
  const Range place = canonical({rank, index, kOutput});
  const Cell& cell = cells(place)[place.index];
  model::Calls calls(trace_.collective);
  const auto spell = [&](const Terms& terms) { return compiler::spell(terms, calls); };
  const Terms wanted = calls.demanded(rank, index);
  const std::optional<Terms> there = cell.written == kNone ? Terms()
                                     : calls.empty()       ? held(place)
                                                           : held_terms(place, calls);
  std::string holds = model::terms_text(cell.terms) + ", too many to list";
  if (there) holds = there->empty() ? "nothing" : spell(*there);
  Diagnostic problem(ErrorCode::PostconditionUnmet,
                     name_output(rank, index) + " must hold " + spell(wanted) + ", but holds " + holds);
  if (there && !there->empty()) {
    if (const Terms lacks = model::difference(wanted, *there); !lacks.empty()) {
      problem.note("missing: " + spell(lacks));
    }
    if (const Terms extra = model::difference(*there, wanted); !extra.empty()) {
      problem.note("too much: " + spell(extra));
    }
  }
  if (!calls.empty() && there && !there->empty()) explain_properties(problem, place, rank, index);
  if (cell.written != kNone && cell.written != 0) {
    problem.note("last written here", trace_.location(trace_.ops[cell.written - 1].where));
  }
  return problem.at(trace_.location(own_location_));
}

std::vector<Diagnostic> Tracer::check_postcondition(std::size_t limit) {
  if (Status started = begin(); !started.ok()) return {std::move(started.error())};
  if (symmetry().exists()) return {};  // the proof compares them
  std::vector<Diagnostic> problems;
  std::size_t further = 0;
  Breath breathe;
  for (std::uint32_t r = 0; r < trace_.ranks(); ++r) {
    for (std::uint32_t i = 0; i < trace_.collective.output_chunks(r); ++i) {
      breathe();
      const model::Demand demanded = trace_.collective.demand(r, i);
      if (demanded.size() == 0) continue;
      // The location where the algorithm itself leaves the chunk; copies that adapt the algorithm may move it
      // afterwards.
      const Range place = canonical({r, i, kOutput});
      const Cell& cell = cells(place)[place.index];
      const bool met = exact_ ? cell.written != kNone && exact(place, 0) == exact_->demanded(r, i)
                              : cell.terms == demanded.size() && cell.value == fingerprints_->sum(demanded);
      if (met) continue;
      if (problems.size() == limit) {
        ++further;
      } else {
        problems.push_back(unmet(r, i));
      }
    }
  }
  if (further != 0 && !problems.empty()) {
    problems.back().note(std::to_string(further) + " further output chunks are not what they must be");
  }
  return problems;
}

Result<Trace> Tracer::finish() {
  GC3_CHECK(begin());
  adapt_after();
  std::vector<Diagnostic> problems = check_postcondition(1);
  if (!problems.empty()) return std::move(problems.front());
  number_lengths();
  if (symmetry().exists()) GC3_CHECK(lay_out_axes());  // buffers become longer
  for (const auto& buffer : cells_) {
    auto& extents = trace_.extents.emplace_back();
    for (const auto& row : buffer) extents.push_back(static_cast<std::uint32_t>(row.size()));
  }
  std::vector<ChunkOp> ops = std::move(trace_.ops);
  Trace out = trace_;  // references still describe themselves by its names
  out.ops = std::move(ops);
  if (open_) {
    GC3_ASSIGN(out.collective, demanding_what_is_made(out));
  }
  return out;
}

}  // namespace gc3::compiler
