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
      copies_(2 * std::size_t{count}),
      padded_(2 * std::size_t{count}) {}

Status RankMemory::bind(const Call& call, const interp::Tiling& tiling) {
  const std::uint32_t chunks = plan_.collective.chunks();
  const std::size_t elem = model::size_of(call.type);
  const bool pads = plan_.pads(call.count);
  regular_ = plan_.regular(call.count);
  block_bytes_ = call.count * elem;
  GC3_ASSIGN(const std::size_t chunk_bytes, interp::checked_bytes(tiling.chunk_elems, elem, "a chunk"));
  GC3_ASSIGN(padded_block_bytes_, interp::checked_bytes(chunk_bytes, chunks, "a padded block"));
  for (std::uint32_t i = 0; i < count_; ++i) {
    const std::uint32_t r = first_ + i;
    const interp::PlanRank& rank = plan_.ranks[r];
    interp::Region* regions = regions_.data() + std::size_t{3} * i;
    // Plan::create refuses programs that write an input that may not change, so the cast loses nothing.
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
    for (std::size_t b = 0; b < 2; ++b) {
      Padded& padded = padded_[2 * i + b];
      padded = {};
      if (pads && regions[b].base != nullptr) {
        const std::uint32_t blocks = b == 0 ? rank.input_blocks : rank.output_blocks;
        GC3_CHECK(pad(regions[b], padded, copies_[2 * i + b], blocks, b == 1 || rank.output_aliased));
      }
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

Status RankMemory::pad(interp::Region& region, Padded& padded, Arena& arena, std::uint32_t blocks, bool result) {
  GC3_ASSIGN(const std::size_t bytes, interp::checked_bytes(padded_block_bytes_, blocks, "a padded copy"));
  GC3_CHECK(grow(arena, bytes, "a padded copy"));
  padded = {region.base, arena.data(), blocks, result};
  region.base = arena.data();
  return {};
}

void RankMemory::copy_in(std::uint32_t rank) const {
  for (std::size_t b = 2 * std::size_t{rank - first_}, end = b + 2; b < end; ++b) {
    const Padded& p = padded_[b];
    for (std::size_t block = 0; block < p.blocks; ++block) {
      std::uint8_t* to = p.copy + block * padded_block_bytes_;
      std::memcpy(to, p.user + block * block_bytes_, block_bytes_);
      std::memset(to + block_bytes_, 0, padded_block_bytes_ - block_bytes_);
    }
  }
}

void RankMemory::copy_out(std::uint32_t rank) const {
  for (std::size_t b = 2 * std::size_t{rank - first_}, end = b + 2; b < end; ++b) {
    const Padded& p = padded_[b];
    if (!p.result) continue;
    for (std::size_t block = 0; block < p.blocks; ++block) {
      std::memcpy(p.user + block * block_bytes_, p.copy + block * padded_block_bytes_, block_bytes_);
    }
  }
}

}  // namespace gc3::cpu
