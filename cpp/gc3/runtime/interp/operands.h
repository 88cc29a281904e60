// From chunks to bytes: the location of each part of a message in a rank's buffers.
//
// The message of a tile is `count` segments, one per chunk, of equal nominal length; if all of it is in one piece of
// memory, it is treated as a single segment. A chunk may be shorter than nominal: bytes past its end are sent with
// unspecified content, but are never read from or written to a buffer.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/layout.h"

namespace gc3::interp {

GC3_HOST_DEVICE uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

struct Message {
  uint64_t segments = 0;
  uint64_t segment_bytes = 0;
  uint64_t first_elem = 0;  // of the tile, within each chunk
};

GC3_HOST_DEVICE Message message_of(const Run& run, uint64_t tile, const Step& step) {
  const uint64_t first = tile * run.tile_elems;
  const uint64_t length = least(run.tile_elems, run.chunk_elems - first);
  if (step.count > 1 && run.tiles == 1 && (run.regular != 0 || step.one_block != 0)) {
    return {1, step.count * length * run.elem_bytes, first};
  }
  return {step.count, length * run.elem_bytes, first};
}

GC3_HOST_DEVICE uint64_t bytes_of(const Message& message) { return message.segments * message.segment_bytes; }
// What the message takes in a FIFO.
GC3_HOST_DEVICE uint64_t wire_bytes(const Message& message) { return bytes_of(message); }

struct Piece {
  uint8_t* at = nullptr;
  uint64_t bytes = 0;  // valid from there on
};

// The location of byte `position` of segment `segment` of the message.
GC3_HOST_DEVICE Piece locate(const Run& run, const Region& region, const Operand& operand, const Message& message,
                             uint64_t segment, uint64_t position) {
  const uint64_t skip = message.first_elem * run.elem_bytes + position;
  const uint64_t chunk_bytes = run.chunk_elems * run.elem_bytes;
  if (region.regular != 0) {
    return {region.base + (operand.chunk + segment) * chunk_bytes + skip, message.segment_bytes - position};
  }
  uint32_t block = operand.block;  // of 32 bits, which a device divides much faster
  uint32_t index = operand.index + static_cast<uint32_t>(segment);
  if (index >= region.chunks) {
    const uint32_t blocks = index / region.chunks;
    block += blocks;
    index -= blocks * region.chunks;
  }
  const uint64_t block_bytes = region.block_elems * run.elem_bytes;
  const uint64_t start = index * chunk_bytes + skip;
  const uint64_t valid = start < block_bytes ? least(block_bytes - start, message.segment_bytes - position) : 0;
  return {region.base + block * block_bytes + (valid == 0 ? 0 : start), valid};
}

}  // namespace gc3::interp
