// Moves the data of a call: one pass over all sources of a move, into all its targets.
//
// A packet is a line of LL: {4 bytes of data, flag, 4 bytes of data, flag}, each half of which is atomic. The flag is
// that of the rank's call, so it is set again only after 2^32 - 1 calls. A packet chunk has always as many lines as the
// longest chunk, and at least one: whether a rank has heard from others in a call does not depend on lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gc3/runtime/cpu/cpu_block.h"
#include "gc3/runtime/direct/machine.h"

namespace gc3::direct {

// The buffers of a rank where this process sees them. In place, input and output overlap by the collective's rule. Of
// the input only an output is written, or a copy of it.
struct RankBuffers {
  const std::uint8_t* input = nullptr;
  std::uint8_t* output = nullptr;
  std::uint8_t* scratch = nullptr;
};

struct Shape {
  std::uint64_t count = 0;  // elements of a block
  std::size_t elem_bytes = 0;
  cpu::Kernel kernel;
  std::size_t stride = 0;  // of chunks in scratch: the same in all calls between which scratch is kept
  bool regular = false;    // all chunks have the full length, in padded blocks too
  bool streams = false;    // inputs and outputs are so large that stores to them should bypass the caches

  // The least stride of scratch for such blocks.
  static std::size_t least_stride(std::uint64_t count, std::uint32_t chunks, std::size_t elem_bytes);
};

class DataMover final : public Mover {
 public:
  // `buffers`: of all ranks.
  DataMover(const Decoded& program, const Shape& shape, std::span<const RankBuffers> buffers);

  Moved move(const Step& step, std::uint64_t call, Position& at) override;
  void settle() override { cpu::CpuBlock::settle(); }

 private:
  static constexpr std::size_t kPiece = 1920;  // bytes of packets at a time: whole lines, and whole elements

  // Sets from_ and to_ for chunk `k` of the step; returns how many bytes it has.
  std::uint64_t resolve(const Step& step, std::uint64_t call, std::uint32_t k);
  std::uint8_t* address(const Place& place, std::uint32_t k, std::size_t half, std::uint64_t& length) const;
  void copy(std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes, bool stream) const;
  void whole(const Step& step, std::uint64_t bytes);
  Moved packets(const Step& step, std::uint64_t call, std::uint64_t bytes, std::uint64_t& offset);

  const Decoded& program_;
  Shape shape_;
  std::span<const RankBuffers> buffers_;
  cpu::CpuBlock block_;
  std::uint64_t chunk_elems_;
  std::vector<std::uint8_t*> from_;  // of the step's sources; read only
  std::vector<std::uint8_t*> to_;
};

}  // namespace gc3::direct
