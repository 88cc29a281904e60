// The vectors of a message in a rank's buffers: loads and stores that respect the ends and the alignment of chunks.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/elements.h"
#include "gc3/runtime/cuda/device/shared.h"
#include "gc3/runtime/cuda/device/vec.h"
#include "gc3/runtime/interp/interpreter.h"
#include "gc3/runtime/interp/operands.h"

namespace gc3::cuda {

GC3_HOST_DEVICE Located locate_step(const interp::Run& run, const interp::Region* regions, const interp::Step& step) {
  const interp::Does does = interp::does_of(step.opcode);
  const bool one_piece = step.count == 1 || (run.tiles == 1 && (run.regular != 0 || step.one_block != 0));
  const interp::Message endless = {1, ~uint64_t{0}, 0};
  Located found;
  found.room = one_piece ? endless.segment_bytes : 0;
  if (does.reads) {
    const interp::Piece piece = interp::locate(run, regions[step.src.buffer], step.src, endless, 0, 0);
    found.src = piece.at;
    found.room = interp::least(found.room, piece.bytes);
  }
  if (does.writes) {
    const interp::Piece piece = interp::locate(run, regions[step.dst.buffer], step.dst, endless, 0, 0);
    found.dst = piece.at;
    found.room = interp::least(found.room, piece.bytes);
  }
  return found;
}

// Any vector of a message, element by element, because it may be unaligned, end early or span several chunks.
template <class Platform, class Element>
class ElementWise {
 public:
  using Stored = typename Element::Stored;
  static constexpr uint32_t kSize = sizeof(Stored);

  GC3_HOST_DEVICE ElementWise(const interp::Run& run, const Shared& shared, const interp::Operand& operand)
      : run_(run), shared_(shared), operand_(operand) {}

  // Elements that do not exist are zero.
  GC3_HOST_DEVICE Vec load(uint64_t vec) const {
    const interp::Piece whole = locate(vec * kVec);
    Vec out;
    GC3_NO_UNROLL
    for (uint32_t i = kVec / kSize; i-- != 0;) {
      const uint64_t offset = vec * kVec + i * kSize;
      const uint8_t* const at = element(whole, offset, i);
      Stored x{};
      if (at != nullptr) x = Platform::template load_element<Stored>(at);
      push(out, x);
    }
    return out;
  }
  GC3_HOST_DEVICE void store(uint64_t vec, Vec v) const {
    const interp::Piece whole = locate(vec * kVec);
    GC3_NO_UNROLL
    for (uint32_t i = 0; i < kVec / kSize; ++i) {
      const uint64_t offset = vec * kVec + i * kSize;
      uint8_t* const at = element(whole, offset, i);
      const Stored x = pop(v);
      if (at != nullptr) Platform::store_element(at, x);
    }
  }

 private:
  using Bits = typename UnsignedOf<kSize>::type;

  GC3_HOST_DEVICE interp::Piece locate(uint64_t offset) const {
    const Remainder& rest = shared_.remainder;
    if (offset >= rest.total) return {};
    // A message fits into a slot, so its length has 32 bits, and a 32-bit division is fast.
    const uint64_t segment = rest.message.segments == 1
                                 ? 0
                                 : static_cast<uint32_t>(offset) / static_cast<uint32_t>(rest.message.segment_bytes);
    return interp::locate(run_, shared_.regions[operand_.buffer], operand_, rest.message, segment,
                          offset - segment * rest.message.segment_bytes);
  }
  // Element i of a vector that begins at `whole`.
  GC3_HOST_DEVICE uint8_t* element(const interp::Piece& whole, uint64_t offset, uint32_t i) const {
    if (whole.bytes >= kVec) return whole.at + i * kSize;
    const interp::Piece piece = locate(offset);
    return piece.bytes != 0 ? piece.at : nullptr;
  }

  // A vector is used as a queue of elements, because shifts keep it in registers and indexing would not.
  GC3_HOST_DEVICE static void push(Vec& v, Stored x) {
    if constexpr (kSize == 8) {
      v.high = v.low;
      v.low = bits_as<uint64_t>(x);
    } else {
      constexpr uint32_t kBits = 8 * kSize;
      v.high = v.high << kBits | v.low >> (64 - kBits);
      v.low = v.low << kBits | bits_as<Bits>(x);
    }
  }
  GC3_HOST_DEVICE static Stored pop(Vec& v) {
    const Stored x = bits_as<Stored>(static_cast<Bits>(v.low));
    if constexpr (kSize == 8) {
      v.low = v.high;
    } else {
      constexpr uint32_t kBits = 8 * kSize;
      v.low = v.low >> kBits | v.high << (64 - kBits);
      v.high >>= kBits;
    }
    return x;
  }
  const interp::Run& run_;
  const Shared& shared_;
  const interp::Operand& operand_;
};

}  // namespace gc3::cuda
