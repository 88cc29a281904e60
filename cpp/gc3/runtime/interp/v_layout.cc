#include "gc3/runtime/interp/v_layout.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/ir/blocks.h"

namespace gc3::interp {
namespace {

using model::Buffer;
using model::Collective;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62U;  // of a buffer: no sum of two overflows

}  // namespace

Result<VLayout> VLayout::create(const ir::Program& program, const Plan& plan, std::uint32_t rank) {
  GC3_ASSIGN(const ir::Blocks blocks, ir::trace_blocks(program));
  const Collective& collective = program.collective;
  const PlanRank& has = plan.ranks[rank];
  VLayout made;
  made.chunks_ = collective.chunks();
  const std::uint32_t inputs = has.input_aliased ? 0 : collective.input_chunks(rank);
  const std::uint32_t outputs = has.output_aliased ? 0 : collective.output_chunks(rank);
  made.first_ = {0, inputs, inputs + outputs, inputs + outputs + has.scratch_chunks};
  if (has.output_aliased) {
    made.result_begin_ = has.alias_block * made.chunks_;
    made.result_end_ = made.result_begin_ + collective.output_chunks(rank);
  }
  std::unordered_map<std::uint32_t, std::uint32_t> known;
  const auto piece = [&](std::uint32_t global) {
    const auto [at, is_new] = known.emplace(global, static_cast<std::uint32_t>(made.pieces_.size()));
    if (is_new) made.pieces_.push_back({global / made.chunks_, global % made.chunks_});
    return at->second;
  };
  std::vector<std::vector<std::uint32_t>> kept(made.first_[3]);
  for (std::uint32_t p = 0; p < made.first_[2]; ++p) {
    const model::Place place = p < inputs ? model::Place{Buffer::input, p} : model::Place{Buffer::output, p - inputs};
    made.own_.push_back(piece(ir::piece_of(collective, rank, place)));
    kept[p].push_back(made.own_[p]);
  }
  // In place, the input that lies within the output, and the reverse.
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    const std::uint32_t size = buffer == Buffer::input ? collective.input_chunks(rank) : collective.output_chunks(rank);
    for (std::uint32_t i = 0; i < size; ++i) {
      const model::Place place = collective.canonical(rank, {buffer, i});
      if (place.buffer == buffer) continue;
      kept[made.first_[static_cast<std::size_t>(place.buffer)] + place.index].push_back(
          piece(ir::piece_of(collective, rank, {buffer, i})));
    }
  }
  const PlanThreadblock* const tbs = plan.threadblocks.data() + has.first_tb;
  const std::uint32_t first = has.tb_count == 0 ? 0 : tbs->first_step;
  const std::uint32_t last =
      has.tb_count == 0 ? 0 : tbs[has.tb_count - 1].first_step + tbs[has.tb_count - 1].step_count;
  for (std::uint32_t s = first; s < last; ++s) {
    const Step& step = plan.steps[s];
    const Does does = does_of(step.opcode);
    made.entries_.push_back({static_cast<std::uint32_t>(made.moved_.size()), step.count});
    for (std::uint32_t k = 0; k < step.count; ++k) {
      Moved moved{piece(blocks.pieces[blocks.first[s] + k]), kNone, kNone};
      if (does.reads) moved.src = made.first_[step.src.buffer] + step.src.chunk + k;
      if (does.writes) {
        moved.dst = made.first_[step.dst.buffer] + step.dst.chunk + k;
        kept[moved.dst].push_back(moved.piece);
      }
      made.moved_.push_back(moved);
    }
  }
  for (std::vector<std::uint32_t>& all : kept) {
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    made.begin_.push_back(static_cast<std::uint32_t>(made.kept_.size()));
    made.kept_.insert(made.kept_.end(), all.begin(), all.end());
  }
  made.begin_.push_back(static_cast<std::uint32_t>(made.kept_.size()));
  made.starts_.resize(made.pieces_.size());
  made.lengths_.resize(made.pieces_.size());
  made.rooms_.resize(made.first_[3]);
  made.places_.resize(made.first_[3]);
  made.steps_.resize(made.entries_.size());
  made.extents_.resize(made.moved_.size());
  return made;
}

Status VLayout::measure(std::span<const std::uint64_t> counts, std::uint64_t elem_bytes, bool copies_input) {
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    const std::uint64_t count = counts[pieces_[p].count];
    if (count > kMostBytes / elem_bytes) {
      return Diagnostic(ErrorCode::BadBuffer, std::to_string(count) + " elements are more than any memory holds");
    }
    const std::uint64_t unit = chunks_ == 1 ? count : count / chunks_ + (count % chunks_ != 0 ? 1 : 0);
    const std::uint64_t first = std::min(count, pieces_[p].index * unit);
    starts_[p] = first * elem_bytes;
    lengths_[p] = std::min(unit, count - first) * elem_bytes;
  }
  sizes_ = {};
  for (std::size_t b = 0; b < 3; ++b) {
    bool fits = b != 2 && !(b == 0 && copies_input);
    std::uint64_t all = 0;
    for (std::uint32_t p = first_[b]; p < first_[b + 1]; ++p) {
      std::uint64_t room = 0;
      for (std::uint32_t k = begin_[p]; k < begin_[p + 1]; ++k) room = std::max(room, lengths_[kept_[k]]);
      rooms_[p] = room;
      if (b < 2) {
        fits = fits && room == lengths_[own_[p]];
        sizes_[b] += lengths_[own_[p]];
      }
      if (room > kMostBytes - all) {
        return Diagnostic(ErrorCode::OutOfMemory, "the chunks that the program keeps are more than any memory holds");
      }
      all += room;
    }
    needs_[b] = fits ? 0 : all;
  }
  return {};
}

Extent VLayout::extent_of(const Moved& moved) const {
  return {moved.src == kNone ? nullptr : places_[moved.src], moved.dst == kNone ? nullptr : places_[moved.dst],
          lengths_[moved.piece]};
}

void VLayout::place(std::span<std::uint8_t* const> input, std::span<std::uint8_t* const> output,
                    const std::array<std::uint8_t*, 3>& memory, bool one_tile) {
  copied_in_.clear();
  copied_out_.clear();
  for (std::size_t b = 0; b < 3; ++b) {
    const std::span<std::uint8_t* const> blocks = b == 0 ? input : output;
    std::uint8_t* next = memory[b];
    for (std::uint32_t p = first_[b]; p < first_[b + 1]; ++p) {
      if (b == 2) {
        places_[p] = next;
        next += rooms_[p];
        continue;
      }
      const std::uint32_t chunk = p - first_[b];
      std::uint8_t* const user = blocks[chunk / chunks_] + starts_[own_[p]];
      places_[p] = user;
      if (needs_[b] == 0) continue;
      places_[p] = next;
      next += rooms_[p];
      const Extent both{user, places_[p], lengths_[own_[p]]};
      copied_in_.push_back(both);
      if (b == 1 || (chunk >= result_begin_ && chunk < result_end_)) copied_out_.push_back(both);
    }
  }
  for (std::size_t s = 0; s < entries_.size(); ++s) {
    const VStep& entry = entries_[s];
    VStep& step = steps_[s] = {entry.first, entry.extents};
    bool joined = one_tile;
    for (std::uint32_t k = entry.first; k < entry.first + entry.extents; ++k) {
      const Extent& made = extents_[k] = extent_of(moved_[k]);
      if (k == entry.first) continue;
      const Extent& before = extents_[k - 1];
      joined = joined && (made.src == nullptr || before.src + before.bytes == made.src) &&
               (made.dst == nullptr || before.dst + before.bytes == made.dst);
    }
    if (!joined || entry.extents < 2) continue;
    step.extents = 1;
    for (std::uint32_t k = entry.first + 1; k < entry.first + entry.extents; ++k) {
      extents_[entry.first].bytes += extents_[k].bytes;
    }
  }
}

}  // namespace gc3::interp
