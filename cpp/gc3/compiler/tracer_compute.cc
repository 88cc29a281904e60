// Compute operations in a trace: their operands, the lengths of chunks, and the terms that explain a wrong result.
#include <algorithm>
#include <numeric>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/language.h"
#include "gc3/base/text.h"
#include "gc3/compiler/tracer.h"

namespace gc3::compiler {

using model::Buffer;

const model::Tensor* Tracer::tensor(BufferIndex buffer) const {
  if (!written_for_.has_tensors() || buffer <= kScratch) return nullptr;
  const std::vector<model::Tensor>& all = written_for_.custom_data()->tensors;
  const std::size_t at = buffer - kScratch - std::size_t{1};
  return at < all.size() ? &all[at] : nullptr;
}

std::uint32_t Tracer::first_chunk(const model::Tensor& tensor, std::uint32_t rank) const {
  std::uint32_t first = 0;
  for (const model::Tensor* t = written_for_.custom_data()->tensors.data(); t != &tensor; ++t) {
    if (t->buffer == tensor.buffer) first += t->chunks[rank];
  }
  return first;
}

BufferIndex Tracer::owner(const Range& range) const {
  if (range.buffer >= kScratch) return range.buffer;
  const auto length = written_for_.v_count(range.rank, static_cast<Buffer>(range.buffer), range.index);
  return static_cast<BufferIndex>(kScratch + 1 + length);
}

BufferIndex Tracer::same_length(BufferIndex buffer) const {
  while (buffer < shares_length_.size() && shares_length_[buffer] != buffer) buffer = shares_length_[buffer];
  return buffer;
}

void Tracer::share_length(const Range& a, const Range& b, std::uint32_t count) {
  if (!written_for_.has_tensors()) return;
  for (std::size_t k = shares_length_.size(); k < trace_.buffer_names.size(); ++k) {
    shares_length_.push_back(static_cast<BufferIndex>(k));
  }
  for (std::uint32_t k = 0; k < count; ++k) {
    const BufferIndex one = same_length(owner({a.rank, a.index + k, a.buffer}));
    const BufferIndex other = same_length(owner({b.rank, b.index + k, b.buffer}));
    // A tensor comes before scratch, and has its name: kScratch is the one buffer of scratch before the tensors.
    const bool first = other == kScratch || (one != kScratch && one < other);
    shares_length_[first ? other : one] = first ? one : other;
  }
}

// Lengths are numbered as the tensors, then as the scratch buffers that share no tensor's length.
void Tracer::number_lengths() {
  if (!written_for_.has_tensors()) return;
  const auto tensors = static_cast<std::uint32_t>(written_for_.custom_data()->tensors.size());
  std::map<BufferIndex, std::uint32_t> numbers;
  std::vector<std::uint32_t> of_tensors;
  for (std::uint32_t t = 0; t < tensors; ++t) {
    const auto buffer = static_cast<BufferIndex>(kScratch + 1 + t);
    trace_.lengths.push_back(trace_.buffer_names[buffer]);
    of_tensors.push_back(numbers.try_emplace(same_length(buffer), t).first->second);
  }
  for (Applied& applied : trace_.applied) {
    for (const Range& range : applied.writes) {
      const BufferIndex buffer = same_length(owner(range));
      const auto next = static_cast<std::uint32_t>(trace_.lengths.size());
      const auto [at, is_new] = numbers.try_emplace(buffer, next);
      if (is_new) trace_.lengths.push_back(trace_.buffer_names[buffer]);
      applied.lengths.push_back(at->second);
    }
  }
  trace_.collective = trace_.collective.with_lengths(of_tensors);
}

Result<Ref> Tracer::place_result(const OutPlace& out, const Ref& first, std::span<const Ref> operands,
                                 std::span<const Ref> results) {
  GC3_ASSIGN(const Range range, locate(out.rank, out.buffer, out.index, 1, true));
  Ref made;
  made.range = range;
  made.named = {range.rank, static_cast<std::uint32_t>(out.index), out.buffer};
  const auto text = [&](const Ref& ref) { return describe(trace_.buffer_names, ref.named, 1); };
  if (range.rank != first.range.rank) {
    return Diagnostic(ErrorCode::BadOperands, "the result " + text(made) + " is of another rank than " + text(first));
  }
  GC3_CHECK(check_writable(made.named, range, 1));
  for (const Ref& operand : operands) {
    if (operand.range == range) {
      return Diagnostic(ErrorCode::BadOperands, text(made) +
                                                    " is an operand and a result: it may be read again after "
                                                    "the result is written");
    }
  }
  for (const Ref& other : results) {
    if (other.range == range) return Diagnostic(ErrorCode::BadOperands, "two results are at " + text(made));
  }
  return made;
}

Result<std::vector<Ref>> Tracer::apply(std::string_view operation, std::span<const Ref> operands,
                                       std::span<const OutPlace> out, LocationId where) {
  const auto wrong = [&](const std::string& why) {
    return at(Diagnostic(ErrorCode::BadOperands, std::string(operation) + ": " + why), where);
  };
  if (!written_for_.has_tensors()) {
    return wrong(std::string(written_for_.name()) +
                 " has no named tensors: give inputs= and outputs= of custom() as mappings from names to chunks");
  }
  const std::vector<std::string>& names = written_for_.custom_data()->operations;
  const auto known = std::ranges::find(names, operation);
  if (known == names.end()) {
    return wrong("the postcondition of " + std::string(written_for_.name()) + " does not name it");
  }
  if (operands.empty() || out.empty()) return wrong("it has no operand, or no result");
  Applied applied;
  applied.operation = static_cast<std::uint32_t>(known - names.begin());
  std::vector<Fingerprints::Argument> arguments;
  for (const Ref& operand : operands) {
    const std::string text = describe(trace_.buffer_names, operand.named, operand.count);
    if (operand.count != 1) return wrong(text + " is not a single chunk");
    if (operand.range.rank != operands.front().range.rank) {
      return wrong(text + " is of another rank than " + describe(trace_.buffer_names, operands.front().named, 1));
    }
    if (Status s = check_readable(operand, "operand"); !s.ok()) return at(std::move(s.error()), where);
    applied.reads.push_back(operand.range);
    const Cell& cell = cells(operand.range)[operand.range.index];
    arguments.push_back({cell.terms, cell.value});
  }
  std::vector<Ref> results;
  for (const OutPlace& place : out) {
    Result<Ref> made = place_result(place, operands.front(), operands, results);
    if (!made.ok()) return at(std::move(made.error()), where);
    results.push_back(std::move(made).value());
    applied.writes.push_back(results.back().range);
  }
  if (trace_.ops.size() + 2 >= kNone / 2) return wrong("the program has too many operations");
  ChunkOp op;
  op.kind = OpKind::apply;
  op.src = applied.reads.front();
  op.dst = op.local = applied.writes.front();
  op.step = step_;
  op.where = where;
  op.applied = static_cast<std::uint32_t>(trace_.applied.size());
  trace_.ops.push_back(op);
  trace_.applied.push_back(std::move(applied));
  const auto made = static_cast<std::uint32_t>(trace_.ops.size());
  const Applied& done = trace_.applied.back();
  for (std::uint32_t k = 0; k < results.size(); ++k) {
    Cell& cell = cells(results[k].range)[results[k].range.index];
    if (exact_) {
      std::vector<model::Terms> terms;
      for (const Range& read : done.reads) terms.push_back(exact(read, 0));
      std::optional<model::Terms> value = exact_->made(done.operation, k, terms);
      Status kept = keep_exact(results[k].range, 0, std::move(value).value_or(model::Terms()));
      if (!kept.ok()) return at(std::move(kept.error()), where);
      cell = {{}, model::kManyTerms, made};
    } else {
      GC3_ASSIGN(const Fingerprint value, fingerprints_->result(done.operation, k, std::vector(arguments)));
      cell = {value, 1, made};
    }
    results[k].made = made;
    results[k].where = where;
  }
  return results;
}

model::Terms Tracer::exact(const Range& range, std::uint32_t k) const {
  const auto found = exact_values_.find({range.buffer, range.rank, range.index + k});
  if (found != exact_values_.end()) return found->second;
  return range.buffer == kInput ? model::Terms{{{range.rank, range.index + k}, 1}} : model::Terms();
}

Status Tracer::keep_moved(const ChunkOp& op, std::uint32_t k) {
  if (!exact_) return {};
  model::Terms sum = exact(op.src, k);
  if (op.kind == OpKind::reduce) {
    for (const auto& [term, times] : exact(op.dst, k)) sum[term] = model::plus_times(sum[term], times);
  }
  return keep_exact(op.dst, k, std::move(sum));
}

Status Tracer::keep_exact(const Range& range, std::uint32_t k, model::Terms terms) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 22U;
  exact_terms_ += terms.size();
  if (exact_terms_ > kMost || exact_->full()) {
    return Diagnostic(ErrorCode::ProgramTooLarge,
                      "its values have more terms than can be listed, which programs with "
                      "linear operations need");
  }
  exact_values_[{range.buffer, range.rank, range.index + k}] = std::move(terms);
  return {};
}

// Runs the trace on terms. None if they are too many.
std::optional<model::Terms> Tracer::held_terms(const Range& range, model::Calls& calls) const {
  constexpr std::size_t kMost = std::size_t{1} << 20U;
  std::map<std::tuple<BufferIndex, std::uint32_t, std::uint32_t>, model::Terms> held;
  const auto at = [&](const Range& r, std::uint32_t k) -> model::Terms& {
    return held[{r.buffer, r.rank, r.index + k}];
  };
  for (std::uint32_t r = 0; r < trace_.ranks(); ++r) {
    for (std::uint32_t i = 0; i < trace_.collective.input_chunks(r); ++i) at({r, i, kInput}, 0)[{r, i}] = 1;
  }
  std::size_t work = 0;
  for (const ChunkOp& op : trace_.ops) {
    if (op.kind == OpKind::apply) {
      const Applied& applied = trace_.applied[op.applied];
      std::vector<model::Terms> arguments;
      for (const Range& read : applied.reads) work += arguments.emplace_back(at(read, 0)).size();
      for (std::uint32_t k = 0; k < applied.writes.size(); ++k) {
        std::optional<model::Terms> made = calls.made(applied.operation, k, arguments);
        if (!made) return std::nullopt;
        at(applied.writes[k], 0) = std::move(*made);
      }
    }
    for (std::uint32_t k = 0; k < op.count && op.kind != OpKind::apply; ++k) {
      model::Terms sum = at(op.src, k);
      if (op.kind == OpKind::reduce) {
        for (const auto& [term, times] : at(op.dst, k)) sum[term] = model::plus_times(sum[term], times);
      }
      work += sum.size();
      at(op.dst, k) = std::move(sum);
    }
    if (work > kMost) return std::nullopt;
  }
  return at(range, 0);
}

// If the output would be right with one more property of one operation: which, and where that is applied.
void Tracer::explain_properties(Diagnostic& problem, const Range& place, std::uint32_t rank,
                                std::uint32_t index) const {
  const model::CustomCollective& data = *trace_.collective.custom_data();
  constexpr std::size_t kMostTried = 16;  // each takes a run of the trace
  std::vector<bool> seen(data.operations.size());
  for (const Applied& applied : trace_.applied) {
    const std::uint32_t operation = applied.operation;
    if (seen[operation]) continue;
    if (static_cast<std::size_t>(std::ranges::count(seen, true)) == kMostTried) return;
    seen[operation] = true;
    std::uint32_t cut = 0;  // the operands that some required value cuts
    for (const model::TermCall& call : data.calls) {
      for (std::size_t k = 0; call.operation == operation && k < call.pieces.size(); ++k) {
        if (call.pieces[k] > 1 && k < model::kPropertyOperands) cut |= 1U << k;
      }
    }
    std::vector<model::Properties> tried = {{.rowwise = cut}, {.elementwise = cut}};
    for (std::uint32_t k = 0; k < applied.reads.size() && k < model::kPropertyOperands; ++k) {
      tried.push_back({.linear = 1U << k});
    }
    for (const model::Properties& more : tried) {
      std::vector<model::Properties> properties = data.properties;
      for (const auto& [name, operands] : model::kProperties) properties[operation].*operands |= more.*operands;
      if (properties == data.properties) continue;
      model::Calls calls(trace_.collective, std::move(properties));
      const std::optional<model::Terms> held = held_terms(place, calls);
      if (!held || calls.full() || *held != calls.demanded(rank, index)) continue;
      const ChunkOp* const op = &*std::ranges::find(trace_.ops, &applied - trace_.applied.data(), &ChunkOp::applied);
      problem.note("they would be equal if '" + data.operations[operation] + "' were " + model::to_string(more) +
                       ", which gc3.op(properties=) does not declare; it is applied here",
                   trace_.location(op->where));
      return;
    }
  }
}

std::string Tracer::name_output(std::uint32_t rank, std::uint32_t index) const {
  std::string name = "output";
  std::uint32_t within = index;
  for (BufferIndex b = kScratch + 1; const model::Tensor* t = tensor(b); ++b) {
    if (t->buffer != Buffer::output) continue;
    if (within < t->chunks[rank]) {
      name = t->name;
      break;
    }
    within -= t->chunks[rank];
  }
  return name + "[" + std::to_string(within) + "] of rank " + std::to_string(rank);
}

}  // namespace gc3::compiler
