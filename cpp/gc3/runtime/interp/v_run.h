// Runs of a v-form, whose blocks differ in length: what a step moves is listed for each of its chunks, and a message
// has exactly the bytes of its chunks. Everything else is as in runs of equal blocks; which of the two a run is, is
// decided where the interpreter is compiled, so equal blocks pay nothing.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/interpreter.h"

namespace gc3::interp {

// What a step moves without a gap: a chunk, a part of one that lies in several arrays, or, in a run of one tile,
// several chunks that follow each other in memory.
struct Extent {
  uint8_t* src = nullptr;  // where the step reads and writes; unused ones are null
  uint8_t* dst = nullptr;
  uint64_t bytes = 0;
  uint64_t begin = 0;  // within its chunk
};

struct VStep {
  uint32_t first = 0;  // in VRun::extents
  uint32_t extents = 0;
  uint64_t bytes = 0;  // of all of them
};

struct VRun : Run {
  const Step* first_step = nullptr;  // of the rank
  const VStep* steps = nullptr;      // of the rank, in the order of the plan
  const Extent* extents = nullptr;
  uint64_t tile_bytes = 0;  // of a chunk; with one tile, no limit
  bool streams[3] = {};     // per buffer, as Region::streams
};

struct VMessage {
  const Extent* extents = nullptr;
  uint64_t segments = 0;
  uint64_t first_byte = 0;  // of the tile, within each chunk
  uint64_t tile_bytes = 0;
  uint64_t bytes = 0;  // of the whole message

  // Where the pieces before have ended, so that the next one need not look for it: an extent, and the bytes before it.
  mutable const Extent* at = nullptr;
  mutable uint64_t before = 0;

  // Where this tile begins in an extent, and how many bytes of the extent are in the tile.
  uint64_t skipped_of(const Extent& extent) const { return first_byte <= extent.begin ? 0 : first_byte - extent.begin; }
  uint64_t part_of(const Extent& extent) const {
    const uint64_t skipped = skipped_of(extent);
    const uint64_t ahead = extent.begin + skipped - first_byte;  // of the tile, before the extent
    return extent.bytes <= skipped || ahead >= tile_bytes ? 0 : least(extent.bytes - skipped, tile_bytes - ahead);
  }
};

inline VMessage message_of(const VRun& run, uint64_t tile, const Step& step) {
  const VStep& moves = run.steps[&step - run.first_step];
  const Extent* const extents = run.extents + moves.first;
  if (run.tiles == 1) return {extents, moves.extents, 0, run.tile_bytes, moves.bytes, extents};
  VMessage message{extents, moves.extents, tile == 0 ? 0 : tile * run.tile_bytes, run.tile_bytes, 0};
  while (message.segments != 0 && message.part_of(*message.extents) == 0) ++message.extents, --message.segments;
  while (message.segments != 0 && message.part_of(message.extents[message.segments - 1]) == 0) --message.segments;
  for (uint64_t i = 0; i < message.segments; ++i) message.bytes += message.part_of(message.extents[i]);
  message.at = message.extents;
  return message;
}

inline uint64_t bytes_of(const VMessage& message) { return message.bytes; }
// A message without data still says that its sender has come so far. Lines carry that only with data.
inline uint64_t wire_bytes(const VMessage& message) { return message.bytes == 0 ? 1 : message.bytes; }

// Where a message of one segment is read from, or written to.
inline Piece whole_source(const VRun&, const Task&, const Step&, const VMessage& message) {
  return {message.extents->src + message.skipped_of(*message.extents), message.bytes};
}
inline Piece whole_target(const VRun&, const Task&, const Step&, const VMessage& message) {
  return {message.extents->dst + message.skipped_of(*message.extents), message.bytes};
}
inline Piece whole_source(const Run& run, const Task& task, const Step& step, const Message& message) {
  return locate(run, task.regions[step.src.buffer], step.src, message, 0, 0);
}
inline Piece whole_target(const Run& run, const Task& task, const Step& step, const Message& message) {
  return locate(run, task.regions[step.dst.buffer], step.dst, message, 0, 0);
}

template <class S, class Block>
void move_piece(Block& block, const VRun& run, const Task&, const Step& step, const VMessage& message, uint64_t offset,
                uint64_t bytes, const uint8_t* in, uint8_t* out) {
  const bool streams = S::writes && run.streams[step.dst.buffer];
  if (message.segments == 1) {  // whose bytes are those of its extent
    const uint64_t at = message.skipped_of(*message.extents) + offset;
    return combine<S>(block, streams, in, S::reads ? message.extents->src + at : nullptr,
                      S::writes ? message.extents->dst + at : nullptr, out, bytes);
  }
  if (message.before > offset) {
    message.at = message.extents;
    message.before = 0;
  }
  uint64_t done = 0;
  for (const Extent* const end = message.extents + message.segments; message.at != end && done < bytes;) {
    const Extent& extent = *message.at;
    const uint64_t length = message.part_of(extent);
    const uint64_t skip = offset + done - message.before;
    if (skip < length) {
      const uint64_t part = least(bytes - done, length - skip);
      const uint64_t at = message.skipped_of(extent) + skip;
      combine<S>(block, streams, S::receives ? in + done : nullptr, S::reads ? extent.src + at : nullptr,
                 S::writes ? extent.dst + at : nullptr, S::sends ? out + done : nullptr, part);
      done += part;
      if (skip + part < length) break;
    }
    message.before += length;
    ++message.at;
  }
  if constexpr (S::sends) {
    if (done < bytes) block.zero(out + done, bytes - done);  // see wire_bytes
  }
}

}  // namespace gc3::interp
