#include "gc3/compiler/tracer.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/language.h"
#include "gc3/base/text.h"

namespace gc3::compiler {
namespace {

using model::Buffer;
using model::Place;

std::string chunks(std::uint64_t n) { return std::to_string(n) + (n == 1 ? " chunk" : " chunks"); }

}  // namespace

constexpr std::size_t kMaxBuffers = 1000;

Result<Tracer> Tracer::create(TracerOptions options, Fingerprints fingerprints) {
  GC3_ASSIGN(Tracer t, create(std::move(options)));
  t.fingerprints_ = std::move(fingerprints);
  return t;
}

Result<Tracer> Tracer::create(TracerOptions options) {
  Tracer t;
  const model::Collective& written_for = options.collective;
  t.written_for_ = written_for;
  t.open_ = options.open;
  t.trace_.name = std::move(options.name);
  t.trace_.protocol = options.protocol;
  t.trace_.collective = written_for.with_in_place(options.in_place);
  t.trace_.buffer_names = {"input", "output", "scratch"};
  if (written_for.has_tensors()) {
    for (const model::Tensor& tensor : written_for.custom_data()->tensors) {
      if (tensor.name == "in" || tensor.name == "out" || tensor.name == "sc" || t.buffer(tensor.name).ok()) {
        return Diagnostic(ErrorCode::UnknownBuffer, in_quotes(tensor.name) + " cannot name a tensor: it is a buffer")
            .at(options.where);
      }
      t.trace_.buffer_names.push_back(tensor.name);
    }
    if (options.protocol != model::Protocol::Simple || options.in_place || written_for.in_place()) {
      return Diagnostic(ErrorCode::NotWithCompute, "another protocol than Simple, or a call in place")
          .at(options.where);
    }
  }
  for (std::string& name : options.scratch) {
    if (name.empty() || t.buffer(name).ok()) {
      return Diagnostic(ErrorCode::UnknownBuffer, "'" + name + "' cannot name a scratch buffer: it is empty or taken")
          .at(options.where);
    }
    t.trace_.buffer_names.push_back(std::move(name));
  }
  if (t.trace_.buffer_names.size() > kMaxBuffers) {
    return Diagnostic(ErrorCode::UnknownBuffer, "more than 1000 scratch buffers").at(options.where);
  }
  if (options.in_place != written_for.in_place()) {
    t.saved_ = static_cast<BufferIndex>(t.trace_.buffer_names.size());
    t.trace_.buffer_names.emplace_back("saved input");
  }
  // Not interned: an operation of the user may stand in the same line.
  t.own_location_ = LocationId(0);
  t.trace_.locations.push_back(std::move(options.where));
  t.trace_.callers.push_back(LocationId::none());
  return t;
}

LocationId Tracer::add_location(SourceLocation location, LocationId caller) {
  const LocationId next(static_cast<std::uint32_t>(trace_.locations.size()));
  const auto [found, is_new] = locations_.try_emplace({location.file, location.line, caller.value}, next);
  if (is_new) {
    trace_.locations.push_back(std::move(location));
    trace_.callers.push_back(caller);
  }
  return found->second;
}

Result<BufferIndex> Tracer::buffer(std::string_view name) const {
  if (name == "in") return kInput;
  if (name == "out") return kOutput;
  if (name == "sc") return kScratch;
  for (std::size_t i = 0; i < trace_.buffer_names.size(); ++i) {
    if (trace_.buffer_names[i] == name && !(i == saved_ && saved_ != kInput)) return static_cast<BufferIndex>(i);
  }
  return Diagnostic(ErrorCode::UnknownBuffer, in_quotes(name));
}

Result<BufferIndex> Tracer::scratch_buffer(const std::string& name) {
  auto known = buffer(name);
  if (known.ok()) return known;
  if (name.empty() || trace_.buffer_names.size() >= kMaxBuffers) {
    return Diagnostic(ErrorCode::UnknownBuffer,
                      name.empty() ? "a scratch buffer without a name" : "more than 1000 scratch buffers");
  }
  trace_.buffer_names.push_back(name);
  if (begun_) cells_.emplace_back(trace_.ranks());
  return static_cast<BufferIndex>(trace_.buffer_names.size() - 1);
}

Diagnostic Tracer::at(Diagnostic problem, LocationId where) const {
  problem.at(trace_.location(where));
  while (where.exists() && (where = trace_.callers[where.value]).exists()) {
    problem.note("called here", trace_.location(where));
  }
  return problem;
}

// An algorithm written for one mode runs in the other on names mapped here and copies added around it:
//   written in place, run out of place: it works in the output where that holds the input, else on a copy of the input;
//   written out of place, run in place: it reads a copy of the input.
Range Tracer::canonical(const Range& named) const {
  if (const model::Tensor* of = tensor(named.buffer)) {
    return {named.rank, first_chunk(*of, named.rank) + named.index, static_cast<BufferIndex>(of->buffer)};
  }
  if (named.buffer > kOutput) return named;
  const Place p = written_for_.canonical(row(named.rank), {static_cast<Buffer>(named.buffer), named.index});
  Range range{named.rank, p.index, static_cast<BufferIndex>(p.buffer)};
  const bool now_in_place = trace_.collective.in_place();
  if (now_in_place == written_for_.in_place()) return range;
  if (!now_in_place) {
    const auto a = written_for_.alias(row(named.rank));
    if (a && a->inner == Buffer::output) range.buffer = saved_;
    return range;
  }
  if (!trace_.collective.alias(row(named.rank))) return range;
  if (p.buffer == Buffer::input) {
    range.buffer = saved_;
    return range;
  }
  const Place q = trace_.collective.canonical(row(named.rank), p);
  return Range{named.rank, q.index, static_cast<BufferIndex>(q.buffer)};
}

void Tracer::copy_inside_rank(const Range& src, const Range& dst, std::uint32_t count) {
  if (count == 0) return;
  if (dst.buffer >= kScratch && cells(dst).size() < dst.index + count) cells(dst).resize(dst.index + count);
  Ref ref;
  ref.range = src;
  ref.count = count;
  // Cannot fail: ranges come from the collective's own sizes, and the operation carries no directive.
  static_cast<void>(record(OpKind::copy, ref, dst, dst, {}, own_location_));
}

void Tracer::adapt_before() {
  const model::Collective& now = trace_.collective;
  for (std::uint32_t r = 0; r < trace_.ranks(); ++r) {
    const auto a = now.in_place() ? now.alias(r) : written_for_.alias(r);
    if (!a) continue;
    const Place source = now.canonical(r, {Buffer::input, 0});
    const Range src{r, source.index, static_cast<BufferIndex>(source.buffer)};
    const bool into_output = !now.in_place() && a->inner == Buffer::input;
    const Range dst = into_output ? Range{r, a->offset, kOutput} : Range{r, 0, saved_};
    copy_inside_rank(src, dst, now.input_chunks(r));
  }
}

void Tracer::adapt_after() {
  const model::Collective& now = trace_.collective;
  if (now.in_place() || now.in_place() == written_for_.in_place()) return;
  for (std::uint32_t r = 0; r < trace_.ranks(); ++r) {
    const auto a = written_for_.alias(r);
    if (!a || a->inner != Buffer::output) continue;
    copy_inside_rank({r, a->offset, saved_}, {r, 0, kOutput}, now.output_chunks(r));
  }
}

Result<Range> Tracer::locate(std::int64_t rank, BufferIndex buffer, std::int64_t index, std::int64_t count,
                             bool write) {
  if (rank < 0 || rank >= written_for_.ranks()) {
    return Diagnostic(ErrorCode::RankOutOfRange,
                      "rank " + std::to_string(rank) + " of " + std::to_string(written_for_.ranks()));
  }
  const auto r = static_cast<std::uint32_t>(rank);
  constexpr std::int64_t kMaxChunks = std::numeric_limits<std::int32_t>::max();
  if (count < 1 || count > kMaxChunks) return Diagnostic(ErrorCode::BadCount, "count " + std::to_string(count));
  if (index < 0 || index > kMaxChunks - count) {
    return Diagnostic(ErrorCode::IndexOutOfRange, "index " + std::to_string(index) + " of " +
                                                      trace_.buffer_names[buffer] + " on rank " + std::to_string(rank));
  }
  const auto end = static_cast<std::uint64_t>(index + count);
  const model::Tensor* const of = tensor(buffer);
  if (buffer <= kOutput || of != nullptr) {
    const std::uint64_t size = of != nullptr      ? of->chunks[r]
                               : buffer == kInput ? written_for_.input_chunks(r)
                                                  : written_for_.output_chunks(r);
    if (end > size) {
      std::string span = "index " + std::to_string(index);
      if (count > 1) span = "indices " + std::to_string(index) + " to " + std::to_string(end - 1);
      return Diagnostic(ErrorCode::IndexOutOfRange, span + " of " + trace_.buffer_names[buffer] + " on rank " +
                                                        std::to_string(rank) + ", which has " + chunks(size) +
                                                        " there in " + std::string(written_for_.name()));
    }
  }
  // The highest index used determines the size of a scratch buffer. The limit is there so that a typo cannot allocate
  // all memory.
  if (buffer > kOutput && end > model::kMaxBufferChunks) {
    return Diagnostic(ErrorCode::IndexOutOfRange, "index " + std::to_string(end - 1) + " of " +
                                                      trace_.buffer_names[buffer] + " on rank " + std::to_string(rank) +
                                                      "; a buffer has at most " + chunks(model::kMaxBufferChunks));
  }
  const Range range = canonical({r, static_cast<std::uint32_t>(index), buffer});
  auto& row = cells(range);
  if (range.buffer >= kScratch && range.index + static_cast<std::uint64_t>(count) > row.size()) {
    if (!write) {
      return Diagnostic(ErrorCode::UninitializedChunk,
                        describe(trace_.buffer_names, {r, static_cast<std::uint32_t>(index), buffer},
                                 static_cast<std::uint32_t>(count)) +
                            " was never written");
    }
    row.resize(range.index + static_cast<std::size_t>(count));
  }
  return range;
}

Result<Ref> Tracer::chunk(std::int64_t rank, BufferIndex buffer, std::int64_t index, std::int64_t count,
                          bool may_be_empty, LocationId where) {
  GC3_CHECK(begin());
  auto range = locate(rank, buffer, index, count, may_be_empty);
  if (!range.ok()) return at(std::move(range.error()), where);
  Ref ref;
  ref.range = range.value();
  ref.named = {static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(index), buffer};
  ref.count = static_cast<std::uint32_t>(count);
  ref.made = static_cast<std::uint32_t>(trace_.ops.size());
  ref.where = where;
  if (!may_be_empty) {
    if (Status s = check_readable(ref, "chunk"); !s.ok()) return at(std::move(s.error()), where);
  }
  return ref;
}

Status Tracer::check_readable(const Ref& ref, const char* role) const {
  const auto& row = cells(ref.range);
  for (std::uint32_t i = 0; i < ref.count; ++i) {
    const Cell& cell = row[ref.range.index + i];
    if (cell.written == kNone) {
      const Range place{ref.named.rank, ref.named.index + i, ref.named.buffer};
      return Diagnostic(ErrorCode::UninitializedChunk,
                        describe(trace_.buffer_names, place, 1) + " was never written (" + role + ")");
    }
    if (cell.written > ref.made) {
      const Range place{ref.named.rank, ref.named.index + i, ref.named.buffer};
      Diagnostic stale(ErrorCode::StaleReference, "the " + std::string(role) + " " +
                                                      describe(trace_.buffer_names, place, 1) +
                                                      " was overwritten after the reference was made");
      stale.note("overwritten here", trace_.location(trace_.ops[cell.written - 1].where));
      stale.note("the reference was made here", trace_.location(ref.where));
      return stale;
    }
  }
  return {};
}

Status Tracer::check_directives(const Directives& d) {
  constexpr std::int32_t kMost = 32767;
  if (d.channel < kAuto || d.channel > kMost) {
    return Diagnostic(ErrorCode::BadChannel, "ch=" + std::to_string(d.channel) + " is not in 0 to 32767");
  }
  if (d.send_tb < kAuto || d.recv_tb < kAuto || d.send_tb > kMost || d.recv_tb > kMost) {
    return Diagnostic(ErrorCode::BadThreadblock, "threadblocks are numbered from 0 to 32767");
  }
  return {};
}

Status Tracer::check_writable(const Range& named, const Range& range, std::uint32_t count) const {
  if (named.buffer <= kOutput || tensor(named.buffer) != nullptr) {
    const Place own{static_cast<Buffer>(named.buffer), named.index};
    const Place tensor_at{static_cast<Buffer>(range.buffer), range.index};
    const Place p = named.buffer <= kOutput ? written_for_.canonical(row(named.rank), own) : tensor_at;
    if (!written_for_.writable(row(named.rank), p)) {
      return Diagnostic(ErrorCode::InputReadOnly, describe(trace_.buffer_names, named, count) + " of the " +
                                                      (written_for_.in_place() ? "in-place" : "out-of-place") + " " +
                                                      std::string(written_for_.name()));
    }
  }
  // A reference must not run past the end of a buffer that aliases another: [index, index + count) must fit in the
  // buffer where the data is.
  if (range.index + static_cast<std::uint64_t>(count) > cells(range).size()) {
    return Diagnostic(ErrorCode::IndexOutOfRange, describe(trace_.buffer_names, named, count));
  }
  return {};
}

Result<Ref> Tracer::copy(const Ref& src, std::int64_t rank, std::optional<BufferIndex> buffer,
                         std::optional<std::int64_t> index, const Directives& directives, LocationId where) {
  if (Status s = check_readable(src, "source"); !s.ok()) return at(std::move(s.error()), where);
  if (!buffer && index) return at(Diagnostic(ErrorCode::NoSuchPlace, "an index without a buffer: give both"), where);
  const BufferIndex into = buffer.value_or(src.named.buffer);
  if (buffer && !index && (into <= kOutput || tensor(into) != nullptr)) {
    return at(Diagnostic(ErrorCode::NoSuchPlace,
                         trace_.buffer_names[into] + " without an index: only a scratch buffer can be appended to"),
              where);
  }
  const auto end = [&]() -> std::int64_t {  // of a rank that does not exist: `locate` refuses it
    if (rank < 0 || rank >= written_for_.ranks()) return 0;
    return std::ssize(cells_[into][row(static_cast<std::uint32_t>(rank))]);
  };
  const std::int64_t at_index = index ? *index : buffer ? end() : std::int64_t{src.named.index};
  auto dst = locate(rank, into, at_index, src.count, true);
  if (!dst.ok()) return at(std::move(dst.error()), where);
  const Range named{static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(at_index), into};
  return record(OpKind::copy, src, named, dst.value(), directives, where);
}

Status Tracer::check_group(std::uint32_t own, std::span<const std::int64_t> others, const char* what) const {
  std::set<std::int64_t> seen;
  for (const std::int64_t rank : others) {
    if (rank == own || !seen.insert(rank).second) {
      return Diagnostic(ErrorCode::BadArgument, std::string(what) + " of rank " + std::to_string(own) + " names rank " +
                                                    std::to_string(rank) +
                                                    (rank == own ? ", which is itself" : " twice"));
    }
  }
  return others.empty() ? Status(Diagnostic(ErrorCode::BadArgument, std::string(what) + " names no other rank"))
                        : Status();
}

Result<std::vector<Ref>> Tracer::multicast(const Ref& src, std::span<const std::int64_t> ranks,
                                           std::optional<BufferIndex> buffer, std::optional<std::int64_t> index,
                                           Directives directives, LocationId where) {
  if (Status s = check_group(src.range.rank, ranks, "a multicast"); !s.ok()) return at(std::move(s.error()), where);
  if (ranks.size() > 1) directives.group = groups_++;
  std::vector<Ref> made;
  for (const std::int64_t rank : ranks) {
    GC3_ASSIGN(Ref copied, copy(src, rank, buffer, index, directives, where));
    made.push_back(std::move(copied));
  }
  return made;
}

Result<Ref> Tracer::multireduce(const Ref& dst, std::span<const Ref> parts, Directives directives, LocationId where) {
  std::vector<std::int64_t> ranks;
  for (const Ref& part : parts) ranks.push_back(part.range.rank);
  if (Status s = check_group(dst.range.rank, ranks, "a multireduce"); !s.ok()) return at(std::move(s.error()), where);
  if (parts.size() > 1) directives.group = groups_++;
  Ref sum = dst;
  for (const Ref& part : parts) {
    GC3_ASSIGN(sum, reduce(sum, part, directives, where));
  }
  return sum;
}

Result<std::vector<Ref>> Tracer::split(const Ref& ref, std::int64_t parts, LocationId where) {
  if (parts < 1 || ref.count % parts != 0) {
    return at(Diagnostic(ErrorCode::BadCount, chunks(ref.count) + " split into " + std::to_string(parts)), where);
  }
  std::vector<Ref> out(static_cast<std::size_t>(parts), ref);
  const std::uint32_t count = ref.count / static_cast<std::uint32_t>(parts);
  for (std::uint32_t i = 0; i < out.size(); ++i) {
    out[i].count = count;
    out[i].range.index += i * count;
    out[i].named.index += i * count;
  }
  return out;
}

Result<Ref> Tracer::group(const Ref& a, const Ref& b, LocationId where) {
  const Ref& first = a.range.index <= b.range.index ? a : b;
  const std::uint64_t end =
      std::max<std::uint64_t>(std::uint64_t{a.range.index} + a.count, std::uint64_t{b.range.index} + b.count);
  const bool near = std::max(a.range.index, b.range.index) <= std::uint64_t{first.range.index} + first.count;
  if (a.range.rank != b.range.rank || a.range.buffer != b.range.buffer || !near) {
    return at(Diagnostic(ErrorCode::NoSuchPlace, describe(trace_.buffer_names, a.named, a.count) + " and " +
                                                     describe(trace_.buffer_names, b.named, b.count) +
                                                     " do not touch: a group is a single range of a buffer"),
              where);
  }
  for (const Ref* part : {&a, &b}) {
    if (Status s = check_readable(*part, "part"); !s.ok()) return at(std::move(s.error()), where);
  }
  Ref out = first;
  out.count = static_cast<std::uint32_t>(end - first.range.index);
  out.made = static_cast<std::uint32_t>(trace_.ops.size());
  out.where = where;
  return out;
}

Result<Ref> Tracer::reduce(const Ref& dst, const Ref& src, const Directives& directives, LocationId where) {
  if (dst.count != src.count) {
    return at(Diagnostic(ErrorCode::UnequalCounts, chunks(dst.count) + " reduced with " + chunks(src.count)), where);
  }
  if (Status s = check_readable(dst, "destination"); !s.ok()) return at(std::move(s.error()), where);
  if (Status s = check_readable(src, "source"); !s.ok()) return at(std::move(s.error()), where);
  return record(OpKind::reduce, src, dst.named, dst.range, directives, where);
}

Result<Ref> Tracer::record(OpKind kind, const Ref& src, const Range& named, const Range& dst,
                           const Directives& directives, LocationId where) {
  const bool remote = src.range.rank != dst.rank;
  const bool own = where == own_location_;  // a copy that adapts the algorithm: no directives, may write anywhere
  if (!own) {
    if (Status s = check_directives(directives); !s.ok()) return at(std::move(s.error()), where);
    if (Status s = check_writable(named, dst, src.count); !s.ok()) return at(std::move(s.error()), where);
  }
  if (trace_.ops.size() + 2 >= kNone / 2) {
    return at(Diagnostic(ErrorCode::ProgramTooLarge, std::to_string(trace_.ops.size()) + " operations"), where);
  }
  Ref result;
  result.range = dst;
  result.named = named;
  result.count = src.count;
  result.where = where;
  result.made = static_cast<std::uint32_t>(trace_.ops.size());
  const bool at_once = symmetry().exists() && remote;  // all ranks do it: none may read what another writes
  if ((!remote || at_once) && src.range.buffer == dst.buffer) {
    if (!remote && kind == OpKind::copy && src.range.index == dst.index) return result;  // already there
    const std::uint32_t low = std::min(src.range.index, dst.index);
    const std::uint32_t high = std::max(src.range.index, dst.index);
    if (high - low < src.count) {
      return at(Diagnostic(ErrorCode::OverlappingReduce,
                           describe(trace_.buffer_names, src.range, src.count) + " and " +
                               describe(trace_.buffer_names, dst, src.count) +
                               (at_once ? ", as each rank names them: all do this at once" : "")),
                where);
    }
  }
  share_length(src.range, dst, src.count);
  ChunkOp op;
  op.kind = kind;
  op.src = src.range;
  op.dst = dst;
  op.local = dst;
  if (symmetry().exists()) {
    op.offset = symmetry().minus(dst.rank, src.range.rank);
    op.src.rank = op.dst.rank = op.local.rank = 0;
  }
  op.adapts = own;
  op.count = src.count;
  op.channel = directives.channel;
  op.send_tb = directives.send_tb != kAuto || remote ? directives.send_tb : directives.recv_tb;
  op.recv_tb = directives.recv_tb != kAuto || remote ? directives.recv_tb : directives.send_tb;
  op.factor = factors_.empty() ? 1 : factors_.back();
  op.step = step_;
  op.where = where;
  op.group = directives.group;
  trace_.ops.push_back(op);
  result.made += 1;
  const Cell* from = cells(src.range).data() + src.range.index;
  Cell* to = cells(dst).data() + dst.index;
  for (std::uint32_t i = 0; i < src.count; ++i) {
    Cell moved = from[i];
    if (kind == OpKind::reduce) {
      moved.value = to[i].value + moved.value;
      moved.terms = model::plus_terms(to[i].terms, moved.terms);
    }
    moved.written = result.made;
    to[i] = moved;
    if (Status kept = keep_moved(op, i); !kept.ok()) return at(std::move(kept.error()), where);
  }
  return result;
}

Status Tracer::push_factor(std::int64_t factor, LocationId where) {
  constexpr std::int64_t kMaxFactor = 1024;
  const bool fits = factor >= 1 && factor <= kMaxFactor;
  const std::int64_t product = fits ? factor * (factors_.empty() ? 1 : factors_.back()) : 0;
  if (!fits || product > kMaxFactor) {
    return at(Diagnostic(ErrorCode::BadParallelize,
                         "factor " + std::to_string(factor) +
                             (fits ? ", " + std::to_string(product) + " with the blocks around it" : "") +
                             "; the largest product is " + std::to_string(kMaxFactor)),
              where);
  }
  if (product > 1 && written_for_.has_tensors()) {
    return at(
        Diagnostic(ErrorCode::NotWithCompute,
                   "parallel parts of a chunk of a tensor: an operation takes whole chunks, so cut the tensor into "
                   "more of them"),
        where);
  }
  factors_.push_back(static_cast<std::uint32_t>(product));
  return {};
}

void Tracer::pop_factor() { factors_.pop_back(); }

}  // namespace gc3::compiler
