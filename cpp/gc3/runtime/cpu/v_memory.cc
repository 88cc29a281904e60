#include "gc3/runtime/cpu/v_memory.h"

#include <algorithm>

#include "gc3/base/copy_bytes.h"
#include "gc3/base/mix64.h"

namespace gc3::cpu {

bool VMemory::is_bound(const VRankCall& call, const RankMemory& memory) const {
  return bound_ && moves_ == memory.moves() && type_ == call.type && std::ranges::equal(counts_, call.counts) &&
         std::ranges::equal(arrays_, call.arrays) && std::ranges::equal(input_, call.input) &&
         std::ranges::equal(output_, call.output);
}

Status VMemory::bind(const VRankCall& call, RankMemory& memory, interp::VRun& run) {
  bound_ = false;
  bool shares = false;  // as in RankMemory::bind
  for (std::size_t i = 0; i < std::min(call.input.size(), call.output.size()) && !in_place_; ++i) {
    shares = shares || (call.input[i] == call.output[i] && call.input[i] != nullptr);
  }
  GC3_CHECK(layout_.measure(call.counts, model::size_of(call.type), copies_input_ || shares));
  const std::array<std::uint64_t, 3>& needs = layout_.needs();
  std::array<std::uint8_t*, 3> at{};
  for (std::size_t b = 0; b < copies_.size(); ++b) {
    GC3_CHECK(grow(copies_[b], needs[b], "a copy of a buffer"));
    at[b] = copies_[b].data();
    run.streams[b] = layout_.sizes()[b] >= kStreamed;
  }
  GC3_ASSIGN(at[2], memory.scratch(rank_, needs[2]));
  const bool one_tile = run.tiles <= 1;
  std::vector<std::uint64_t> arrays(call.arrays.begin(), call.arrays.end());
  for (std::uint64_t& length : arrays) length *= model::size_of(call.type);
  layout_.place(call.input, call.output, arrays, at, one_tile);
  run.tile_bytes = one_tile ? ~std::uint64_t{0} : run.tile_elems * run.elem_bytes;
  run.steps = layout_.steps();
  run.extents = layout_.extents();
  hash_ = 0;
  for (const std::uint64_t count : call.counts) hash_ = mix64(hash_ ^ count);
  for (const std::uint64_t count : call.arrays) hash_ = mix64(hash_ ^ count);
  type_ = call.type;
  counts_.assign(call.counts.begin(), call.counts.end());
  arrays_.assign(call.arrays.begin(), call.arrays.end());
  input_.assign(call.input.begin(), call.input.end());
  output_.assign(call.output.begin(), call.output.end());
  moves_ = memory.moves();
  bound_ = true;
  return {};
}

void VMemory::copy_in() const {
  for (const interp::Extent& part : layout_.copied_in()) {
    copy_bytes(part.dst, part.src, part.bytes);
  }
}

void VMemory::copy_out() const {
  for (const interp::Extent& part : layout_.copied_out()) {
    copy_bytes(part.src, part.dst, part.bytes);
  }
}

}  // namespace gc3::cpu
