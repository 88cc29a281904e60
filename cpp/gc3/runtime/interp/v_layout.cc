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

constexpr std::uint64_t kOperands = 1;  // as the bytes of an entry: of operands, which stay apart, even empty ones

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
    const bool applies = step.opcode == Op::apply;
    made.entries_.push_back({static_cast<std::uint32_t>(made.moved_.size()), step.count, applies ? kOperands : 0});
    if (applies) {
      const ir::Application& a = plan.compute.applications[step.src.chunk];
      std::uint32_t k = 0;
      for (const ir::Operand& o : plan.compute.operands_of(a)) {
        Moved moved{piece(blocks.pieces[blocks.first[s] + k]), kNone, kNone};
        const std::uint32_t at = made.first_[static_cast<std::size_t>(o.buffer)] + o.chunk;
        (k < a.reads ? moved.src : moved.dst) = at;
        if (k++ >= a.reads) kept[at].push_back(moved.piece);
        made.moved_.push_back(moved);
      }
      continue;
    }
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
  made.extents_.reserve(made.moved_.size());
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

VLayout::Stretch VLayout::stretch(const Place& place, std::uint64_t offset) const {
  if (place.arrays == nullptr) return {place.at == nullptr ? nullptr : place.at + offset};
  const std::uint64_t byte = place.begin + offset;
  const auto end = std::ranges::upper_bound(ends_, byte);
  const auto array = static_cast<std::size_t>(end - ends_.begin());
  return {place.arrays[array] + (byte - (array == 0 ? 0 : ends_[array - 1])), *end - byte};
}

void VLayout::append(std::vector<Extent>& to, const Place& src, const Place& dst, std::uint64_t bytes,
                     bool joins) const {
  for (std::uint64_t done = 0; done < bytes;) {
    const Stretch from = stretch(src, done);
    const Stretch into = stretch(dst, done);
    const Extent made{from.at, into.at, std::min({bytes - done, from.bytes, into.bytes}), done};
    done += made.bytes;
    if (joins) {
      Extent& before = to.back();
      if ((made.src == nullptr || before.src + before.bytes == made.src) &&
          (made.dst == nullptr || before.dst + before.bytes == made.dst)) {
        before.bytes += made.bytes;
        continue;
      }
    }
    to.push_back(made);
  }
}

void VLayout::place(std::span<std::uint8_t* const> input, std::span<std::uint8_t* const> output,
                    std::span<const std::uint64_t> arrays, const std::array<std::uint8_t*, 3>& memory, bool one_tile) {
  copied_in_.clear();
  copied_out_.clear();
  extents_.clear();
  ends_.clear();
  for (const std::uint64_t bytes : arrays) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + bytes);
  for (std::size_t b = 0; b < 3; ++b) {
    const std::span<std::uint8_t* const> blocks = b == 0 ? input : output;
    std::uint8_t* next = memory[b];
    for (std::uint32_t p = first_[b]; p < first_[b + 1]; ++p) {
      places_[p] = {next};
      if (b != 2) {
        const std::uint32_t chunk = p - first_[b];
        const std::uint32_t block = chunk / chunks_;
        const std::uint64_t begin = starts_[own_[p]];
        const Place user = arrays.empty() ? Place{blocks[block] + begin}
                                          : Place{nullptr, blocks.data() + block * arrays.size(), begin};
        if (needs_[b] == 0) {
          places_[p] = user;
          continue;
        }
        append(copied_in_, user, places_[p], lengths_[own_[p]], false);
        if (b == 1 || (chunk >= result_begin_ && chunk < result_end_)) {
          append(copied_out_, user, places_[p], lengths_[own_[p]], false);
        }
      }
      next += rooms_[p];
    }
  }
  const auto place_of = [&](std::uint32_t place) { return place == kNone ? Place() : places_[place]; };
  for (std::size_t s = 0; s < entries_.size(); ++s) {
    const VStep& entry = entries_[s];
    const std::size_t first = extents_.size();
    std::uint64_t bytes = 0;
    for (std::uint32_t k = entry.first; k < entry.first + entry.extents; ++k) {
      const Moved& moved = moved_[k];
      bytes += lengths_[moved.piece];
      if (entry.bytes == kOperands) {
        extents_.push_back({place_of(moved.src).at, place_of(moved.dst).at, lengths_[moved.piece], 0});
        continue;
      }
      append(extents_, place_of(moved.src), place_of(moved.dst), lengths_[moved.piece],
             one_tile && extents_.size() != first);
    }
    steps_[s] = {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(extents_.size() - first), bytes};
  }
}

}  // namespace gc3::interp
