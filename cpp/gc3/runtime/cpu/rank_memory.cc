#include "gc3/runtime/cpu/rank_memory.h"

#include <cstring>
#include <limits>

#include "gc3/runtime/interp/checked_bytes.h"

namespace gc3::cpu {
namespace {

// A buffer of so many bytes is written past the caches: little of it would still be there when it is read.
constexpr std::size_t kStreamed = std::size_t{8} << 20U;

// Keeps the memory of earlier calls where it is large enough.
Status grow(Arena& arena, std::size_t bytes, const std::string& purpose) {
  if (bytes <= arena.size()) return {};
  arena = Arena();  // given back first: what is there already must not count against the new request
  GC3_ASSIGN(arena, Arena::create(bytes, purpose));
  return {};
}

}  // namespace

RankMemory::RankMemory(const interp::Plan& plan, std::uint32_t first, std::uint32_t count)
    : plan_(plan),
      first_(first),
      count_(count),
      regions_(3 * std::size_t{count}),
      scratch_(count),
      arenas_(2 * std::size_t{count}),
      copies_(2 * std::size_t{count}) {}

void RankMemory::close() {
  allocate_ = {};
  scratch_.clear();
}

Status RankMemory::bind(const Call& call, const interp::Tiling& tiling) {
  const std::uint32_t chunks = plan_.collective.chunks();
  const std::size_t elem = model::size_of(call.type);
  const bool pads = plan_.pads(call.count);
  regular_ = plan_.regular(call.count);
  block_bytes_ = call.count * elem;
  GC3_ASSIGN(const std::size_t chunk_bytes, interp::checked_bytes(tiling.chunk_elems, elem, "a chunk"));
  GC3_ASSIGN(const std::size_t padded_block_bytes, interp::checked_bytes(chunk_bytes, chunks, "a padded block"));
  copied_block_bytes_ = pads ? padded_block_bytes : block_bytes_;
  for (std::uint32_t i = 0; i < count_; ++i) {
    const std::uint32_t r = first_ + i;
    const interp::PlanRank& rank = plan_.ranks[r];
    interp::Region* regions = regions_.data() + std::size_t{3} * i;
    // The input is written where the output lies in it, and nowhere else: see PlanRank::copies_input.
    auto* input = static_cast<std::uint8_t*>(const_cast<void*>(call.inputs[r]));
    auto* output = static_cast<std::uint8_t*>(call.outputs[r]);
    const std::uint32_t is_regular = regular_ ? 1 : 0;
    const auto streams = [&](std::uint32_t blocks) { return block_bytes_ * blocks >= kStreamed ? 1U : 0U; };
    regions[0] = {rank.input_aliased ? nullptr : input, call.count, chunks, is_regular, streams(rank.input_blocks)};
    regions[1] = {rank.output_aliased ? nullptr : output, call.count, chunks, is_regular, streams(rank.output_blocks)};
    const std::string whose = " of rank " + std::to_string(r);
    GC3_ASSIGN(const std::size_t scratch,
               interp::checked_bytes(chunk_bytes, rank.scratch_chunks, "the scratch" + whose));
    GC3_CHECK(grow_scratch(scratch_[i], scratch, "the scratch" + whose));
    regions[2] = {scratch_[i].data(), 0, std::numeric_limits<std::uint32_t>::max(), 1, 0};
    copies_[2 * i] = copies_[2 * i + 1] = {};
    const std::uint32_t results = rank.output_aliased ? rank.output_blocks : 0;
    if ((pads || rank.copies_input) && block_bytes_ != 0 && regions[0].base != nullptr) {
      copies_[2 * i] = {input, nullptr, rank.input_blocks, output, rank.alias_block, results};
      GC3_CHECK(make_copy(regions[0], copies_[2 * i], arenas_[2 * i]));
    }
    if (pads && regions[1].base != nullptr) {
      copies_[2 * i + 1] = {output, nullptr, rank.output_blocks, output, 0, rank.output_blocks};
      GC3_CHECK(make_copy(regions[1], copies_[2 * i + 1], arenas_[2 * i + 1]));
    }
  }
  return {};
}

Status RankMemory::grow_scratch(Scratch& scratch, std::size_t bytes, const std::string& purpose) const {
  if (bytes <= scratch.bytes) return {};
  scratch = {};  // given back first, as in grow()
  if (allocate_) {
    Result<std::shared_ptr<std::uint8_t>> shared = allocate_(bytes);
    if (shared.ok()) scratch.shared = std::move(shared).value();
  }
  if (scratch.shared == nullptr) {
    GC3_ASSIGN(scratch.own, Arena::create(bytes, purpose));
  }
  scratch.bytes = bytes;
  return {};
}

Status RankMemory::make_copy(interp::Region& region, Copy& copy, Arena& arena) const {
  GC3_ASSIGN(const std::size_t bytes, interp::checked_bytes(copied_block_bytes_, copy.blocks, "a copy of a buffer"));
  GC3_CHECK(grow(arena, bytes, "a copy of a buffer"));
  copy.data = arena.data();
  region.base = arena.data();
  return {};
}

void RankMemory::copy_in(std::uint32_t rank) const {
  for (std::size_t b = 2 * std::size_t{rank - first_}, end = b + 2; b < end; ++b) {
    const Copy& c = copies_[b];
    for (std::size_t block = 0; block < c.blocks; ++block) {
      std::uint8_t* to = c.data + block * copied_block_bytes_;
      std::memcpy(to, c.user + block * block_bytes_, block_bytes_);
      std::memset(to + block_bytes_, 0, copied_block_bytes_ - block_bytes_);
    }
  }
}

void RankMemory::copy_out(std::uint32_t rank) const {
  for (std::size_t b = 2 * std::size_t{rank - first_}, end = b + 2; b < end; ++b) {
    const Copy& c = copies_[b];
    for (std::size_t block = 0; block < c.results; ++block) {
      std::memcpy(c.output + block * block_bytes_, c.data + (c.first + block) * copied_block_bytes_, block_bytes_);
    }
  }
}

}  // namespace gc3::cpu
