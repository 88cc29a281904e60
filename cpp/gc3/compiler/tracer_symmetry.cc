// What a trace begins with, cells of all ranks or of one that stands for all, and how indices depend on the rank.
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/compiler/tracer.h"

namespace gc3::compiler {

// A trace takes some 200 bytes per chunk, so this bounds memory; no existing machine could run more.
constexpr std::uint64_t kMaxTracedChunks = 1U << 24U;

Status Tracer::make_cells() {
  const model::Collective& collective = trace_.collective;
  const std::uint32_t ranks = trace_.ranks();
  std::uint64_t chunks = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) chunks += collective.input_chunks(r) + collective.output_chunks(r);
  if (chunks > kMaxTracedChunks) {
    return Diagnostic(ErrorCode::ProgramTooLarge, std::to_string(chunks) +
                                                      " chunks in all inputs and outputs; at most " +
                                                      std::to_string(kMaxTracedChunks) + " can be traced")
        .at(trace_.location(own_location_));
  }
  // With a symmetry, outputs are compared when the program is proven.
  if (!fingerprints_ && !symmetry().exists()) {
    GC3_ASSIGN(fingerprints_, Fingerprints::draw(collective));
  }
  cells_.assign(trace_.buffer_names.size(), std::vector<std::vector<Cell>>(ranks));
  for (std::uint32_t r = 0; r < ranks; ++r) {
    cells_[kInput][r].resize(collective.input_chunks(r));
    cells_[kOutput][r].resize(collective.output_chunks(r));
    for (std::uint32_t i = 0; i < collective.input_chunks(r); ++i) {
      const model::Place p = collective.canonical(r, {model::Buffer::input, i});
      const Fingerprint value = symmetry().exists() ? Fingerprint() : fingerprints_->input(r, i);
      cells_[static_cast<std::size_t>(p.buffer)][r][p.index] = {value, 1, 0};
    }
  }
  if (collective.has_linear()) exact_.emplace(collective);
  begun_ = true;
  if (collective.in_place() != written_for_.in_place()) adapt_before();
  return {};
}

Status Tracer::see_from_one_rank(const std::vector<std::uint32_t>& shape, LocationId where) {
  Result<model::Symmetry> made = model::Symmetry::of(shape);
  if (!made.ok()) return at(std::move(made.error()), where);
  model::Symmetry machine = std::move(made).value();
  if (machine == symmetry()) return {};
  if (begun_ || symmetry().exists()) {
    return at(Diagnostic(ErrorCode::BadArgument, begun_ ? "me() after the first chunk(): it comes before all of them"
                                                        : "me() of another machine than before"),
              where);
  }
  if (open_) {
    return at(Diagnostic(ErrorCode::BadArgument, "me() in a program that has no collective of its own"), where);
  }
  const model::Axes ranks = machine.of_ranks(written_for_.chunks());
  const auto own = [&](std::uint32_t blocks) { return blocks == 1 ? model::Axes() : ranks; };
  if (Status s = machine.check(written_for_, own(written_for_.input_blocks(0)), own(written_for_.output_blocks(0)));
      !s.ok()) {
    return at(std::move(s.error()), where);
  }
  trace_.symmetry = std::move(machine);
  return {};
}

Status Tracer::depend(const Ref& ref, const model::Axes& axes, LocationId where) {
  // An axis begins where the indices below it end: all ranks then have the same digits, at other places.
  for (const model::Axis& axis : axes) {
    if (symmetry().in_one_digit(axis, ref.named.index, ref.count)) continue;
    return at(Diagnostic(ErrorCode::BadArgument, std::to_string(ref.count) + " chunks" +
                                                     " from an index that moves by " + std::to_string(axis.factor) +
                                                     " with the rank: on some ranks they are not side by side"),
              where);
  }
  uses_.push_back({ref.named, ref.count, axes, where});
  return {};
}

// The axes of a buffer are those that any index into it has. Both buffers of the collective have the same ones inside a
// block, and its blocks that belong to ranks have those of ranks. Every other index must have each axis, too, or all of
// its digits: else a rank would name a chunk by its own number, and ranks would do different things.
Status Tracer::lay_out_axes() {
  const std::uint32_t chunks = written_for_.chunks();
  const auto has_blocks = [&](BufferIndex b) {
    return (b == kInput ? written_for_.input_blocks(0) : written_for_.output_blocks(0)) > 1;
  };
  const auto of_collective = [&](BufferIndex b) { return b <= kOutput || (b == saved_ && saved_ != kInput); };
  std::vector<std::map<std::uint32_t, model::Axis>> found(trace_.buffer_names.size());  // by factor
  for (const Use& use : uses_) {
    const BufferIndex b = use.named.buffer;
    for (const model::Axis& axis : use.axes) {
      if (b <= kOutput && has_blocks(b) && axis.factor >= chunks) continue;
      found[of_collective(b) ? kInput : b].try_emplace(axis.factor, axis);
    }
  }
  trace_.axes.assign(found.size(), {});
  for (BufferIndex b = 0; b < found.size(); ++b) {
    model::Axes& axes = trace_.axes[b];
    for (const auto& [factor, axis] : found[of_collective(b) ? kInput : b]) axes.push_back(axis);
    const BufferIndex like = b == saved_ ? kInput : b;
    if (of_collective(b) && has_blocks(like)) std::ranges::copy(symmetry().of_ranks(chunks), std::back_inserter(axes));
  }
  for (const Use& use : uses_) {
    const model::Axes& axes = trace_.axes[use.named.buffer];
    const auto bad = [&](const std::string& why) {
      return at(Diagnostic(ErrorCode::BadArgument,
                           describe(trace_.buffer_names, use.named, use.count) + ", as that rank names it: " + why),
                use.where);
    };
    for (const model::Axis& axis : use.axes) {
      if (std::ranges::find(axes, axis) != axes.end()) continue;
      return bad("its index moves by " + std::to_string(axis.factor) +
                 " with a coordinate, and other indices of this buffer move by as much with another one");
    }
    for (std::size_t k = 0; k < axes.size(); ++k) {
      if (k + 1 < axes.size() && axes[k + 1].factor % symmetry().span(axes[k]) != 0) {
        return bad("indices of this buffer move by " + std::to_string(axes[k].factor) + " and by " +
                   std::to_string(axes[k + 1].factor) + " with the rank, and so overlap");
      }
      const bool moves = std::ranges::find(use.axes, axes[k]) != use.axes.end();
      if (moves || symmetry().covers(axes[k], use.named.index, use.count)) continue;
      return bad("this index is the same on all ranks, and others of this buffer move by " +
                 std::to_string(axes[k].factor) + " with the rank; name it from me(), or all that these can be");
    }
  }
  for (BufferIndex b = kScratch; b < found.size(); ++b) {  // whole axes
    std::vector<Cell>& row = cells_[b][0];
    const std::uint64_t span = trace_.axes[b].empty() ? 1 : symmetry().span(trace_.axes[b].back());
    const std::uint64_t size = (row.size() + span - 1) / span * span;
    if (size > model::kMaxBufferChunks) {
      return Diagnostic(ErrorCode::ProgramTooLarge, std::to_string(size) + " chunks of " + trace_.buffer_names[b]);
    }
    row.resize(size);
  }
  if (Status s = symmetry().check(written_for_, trace_.axes[kInput], trace_.axes[kOutput]); !s.ok()) {
    return at(std::move(s.error()), own_location_);
  }
  return {};
}

}  // namespace gc3::compiler
