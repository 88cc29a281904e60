#include "gc3/runtime/cpu/rank_memory.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "gc3/base/copy_bytes.h"
#include "gc3/runtime/interp/checked_bytes.h"

namespace gc3::cpu {

Status grow(Arena& arena, std::size_t bytes, const std::string& purpose) {
  if (bytes <= arena.size()) return {};
  arena = Arena();  // freed first, so that both are never allocated at the same time
  GC3_ASSIGN(arena, Arena::create(bytes, purpose));
  arena.use_all();
  return {};
}

RankMemory::RankMemory(const interp::Plan& plan, std::uint32_t first, std::uint32_t count)
    : plan_(plan),
      first_(first),
      count_(count),
      regions_(3 * std::size_t{count}),
      scratch_(count),
      made_(2 * std::size_t{count}),
      copies_(2 * std::size_t{count}) {}

void RankMemory::close() {
  allocate_ = {};
  allocate_copies_ = {};
  scratch_.clear();
}

Status RankMemory::bind(const Call& call, const interp::Run& run, std::array<bool, 2> copied) {
  const std::uint32_t chunks = plan_.collective.chunks();
  const std::size_t elem = model::size_of(call.type);
  block_bytes_ = call.count * elem;
  factors_.resize(call.scales() ? count_ : 0);
  copies_any_ = call.scales();
  multiply_ = best_kernels()
                  .reduce[static_cast<std::size_t>(call.type)][static_cast<std::size_t>(model::ReduceOp::prod)]
                  .reduce;
  GC3_ASSIGN(const std::size_t chunk_bytes, interp::checked_bytes(run.chunk_elems, elem, "a chunk"));
  GC3_ASSIGN(const std::size_t padded_block_bytes, interp::checked_bytes(chunk_bytes, chunks, "a padded block"));
  copied_block_bytes_ = plan_.pads(call.count) ? padded_block_bytes : block_bytes_;
  for (std::uint32_t i = 0; i < count_; ++i) {
    const std::uint32_t r = first_ + i;
    const interp::PlanRank& rank = plan_.ranks[r];
    interp::Region* regions = regions_.data() + std::size_t{3} * i;
    // The input is written only where the output lies in it: see PlanRank::copies_input.
    auto* input = static_cast<std::uint8_t*>(const_cast<void*>(call.inputs[r]));
    auto* output = static_cast<std::uint8_t*>(call.outputs[r]);
    const auto streams = [&](std::uint32_t blocks) { return block_bytes_ * blocks >= kStreamed ? 1U : 0U; };
    regions[0] = {rank.input_aliased ? nullptr : input, call.count, chunks, run.regular, streams(rank.input_blocks)};
    regions[1] = {rank.output_aliased ? nullptr : output, call.count, chunks, run.regular, streams(rank.output_blocks)};
    GC3_ASSIGN(const std::size_t scratch, interp::checked_bytes(chunk_bytes, rank.scratch_chunks, "scratch"));
    if (scratch > scratch_[i].bytes) {
      GC3_CHECK(grow_scratch(scratch_[i], scratch, "the scratch of rank " + std::to_string(r)));
    }
    regions[2] = {scratch_[i].data(), 0, std::numeric_limits<std::uint32_t>::max(), 1, 0};
    if (call.scales()) {
      const std::byte* const factor = call.factors[r].element.data();
      for (std::size_t at = 0; at < kFactors; at += elem) std::memcpy(factors_[i].data() + at, factor, elem);
    }
    // Of reduce only the root knows that a call is in place, so the program is the one for two buffers.
    const bool apart = !rank.input_aliased && !rank.output_aliased;
    const bool shares = apart && input == output && rank.input_blocks != 0 && rank.output_blocks != 0;
    const std::array<interp::Copied, 2> how = plan_.copies(r, call.count, call.scales() || shares, copied);
    for (std::size_t b = 0; b < 2; ++b) {
      interp::Copy& copy = copies_[2 * i + b] = {};
      if (how[b].blocks == 0 || regions[b].base == nullptr) continue;
      copies_any_ = true;
      copy = {regions[b].base, nullptr, output, how[b]};
      GC3_CHECK(make_copy(regions[b], copy, made_[2 * i + b]));
    }
  }
  return {};
}

bool RankMemory::move_to(std::uint32_t rank, const void* input, void* output) {
  const std::size_t i = rank - first_;
  const interp::PlanRank& has = plan_.ranks[rank];
  const bool copied = copies_[2 * i].how.blocks != 0 || copies_[2 * i + 1].how.blocks != 0;
  if (copied || (!has.input_aliased && !has.output_aliased && input == output)) return false;  // see bind()
  interp::Region* const regions = regions_.data() + 3 * i;
  if (!has.input_aliased) regions[0].base = static_cast<std::uint8_t*>(const_cast<void*>(input));
  if (!has.output_aliased) regions[1].base = static_cast<std::uint8_t*>(output);
  return true;
}

Result<std::uint8_t*> RankMemory::scratch(std::uint32_t rank, std::size_t bytes) {
  Scratch& has = scratch_[rank - first_];
  GC3_CHECK(grow_scratch(has, bytes, "the scratch of rank " + std::to_string(rank)));
  return has.data();
}

Status RankMemory::grow_scratch(Scratch& scratch, std::size_t bytes, const std::string& purpose) {
  if (bytes <= scratch.bytes) return {};
  ++moves_;
  return grow_by(allocate_, scratch, bytes, purpose);
}

Status RankMemory::grow_by(const Allocate& allocate, Scratch& scratch, std::size_t bytes, const std::string& purpose) {
  if (bytes <= scratch.bytes) return {};
  scratch = {};  // freed first, as in grow()
  if (allocate) {
    Result<std::shared_ptr<std::uint8_t>> shared = allocate(bytes);
    if (shared.ok()) scratch.shared = std::move(shared).value();
  }
  if (scratch.shared == nullptr) {
    GC3_CHECK(grow(scratch.own, bytes, purpose));
  }
  scratch.bytes = bytes;
  return {};
}

Status RankMemory::make_copy(interp::Region& region, interp::Copy& copy, Scratch& has) const {
  GC3_ASSIGN(const std::size_t bytes,
             interp::checked_bytes(copied_block_bytes_, copy.how.blocks, "a copy of a buffer"));
  GC3_CHECK(grow_by(allocate_copies_, has, bytes, "a copy of a buffer"));
  copy.data = has.data();
  region.base = has.data();
  return {};
}

void RankMemory::make_copies(std::uint32_t rank) const {
  for (std::size_t b = 2 * std::size_t{rank - first_}, end = b + 2; b < end; ++b) {
    const interp::Copy& c = copies_[b];
    for (std::size_t block = 0; block < c.how.blocks; ++block) {
      std::uint8_t* to = c.data + block * copied_block_bytes_;
      copy_bytes(to, c.user + block * block_bytes_, block_bytes_);
      std::memset(to + block_bytes_, 0, copied_block_bytes_ - block_bytes_);
    }
  }
  if (!factors_.empty()) scale_input(rank);
}

void RankMemory::scale_input(std::uint32_t rank) const {
  const interp::PlanRank& has = plan_.ranks[rank];
  const std::array<std::uint8_t, kFactors>& factors = factors_[rank - first_];
  std::uint8_t* const buffer = regions(rank)[has.input_aliased ? 1 : 0].base;
  for (std::uint32_t block = 0; block < has.input_blocks; ++block) {
    std::uint8_t* const at =
        buffer + (std::size_t{has.input_aliased ? has.alias_block : 0} + block) * copied_block_bytes_;
    for (std::size_t done = 0; done < block_bytes_; done += kFactors) {
      multiply_(at + done, at + done, factors.data(), std::min(kFactors, block_bytes_ - done));
    }
  }
}

void RankMemory::return_copies(std::uint32_t rank) const {
  for (std::size_t b = 2 * std::size_t{rank - first_}, end = b + 2; b < end; ++b) {
    const interp::Copy& c = copies_[b];
    for (std::size_t block = 0; block < c.how.results; ++block) {
      copy_bytes(c.output + block * block_bytes_, c.data + (c.how.first + block) * copied_block_bytes_, block_bytes_);
    }
  }
}

}  // namespace gc3::cpu
