#include "gc3/runtime/direct/data_mover.h"

#include <algorithm>
#include <limits>

namespace gc3::direct {
namespace {

constexpr std::size_t kLineData = 8;

std::uint32_t flag_of(std::uint64_t call) {
  constexpr std::uint64_t kFlags = std::numeric_limits<std::uint32_t>::max();  // 0 is that of empty scratch
  return static_cast<std::uint32_t>((call - 1) % kFlags + 1);
}

// False: some line has not arrived.
template <class Block>
bool load_packets(Block& block, std::uint8_t* to, const std::uint8_t* from, std::size_t lines, std::uint64_t flag) {
  const auto* line = reinterpret_cast<const std::uint64_t*>(from);
  if constexpr (requires { block.load_lines(to, line, std::uint64_t{}, flag); }) {
    return block.load_lines(to, line, lines, flag);
  }
  for (std::size_t i = 0; i < lines; ++i) {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    if (!block.await_line(line + 2 * i, flag, &low, &high)) return false;
    block.put_word(to + kLineData * i, (low & 0xffffffffU) | (high << 32U));
  }
  return true;
}

template <class Block>
void store_packets(Block& block, std::uint8_t* to, const std::uint8_t* from, std::size_t lines, std::uint64_t flag) {
  auto* line = reinterpret_cast<std::uint64_t*>(to);
  if constexpr (requires { block.store_lines(line, from, std::uint64_t{}, flag); }) {
    return block.store_lines(line, from, lines, flag);
  }
  for (std::size_t i = 0; i < lines; ++i) {
    const std::uint64_t data = block.get_word(from + kLineData * i);
    block.store_word(line + 2 * i, (data & 0xffffffffU) | flag << 32U);
    block.store_word(line + 2 * i + 1, (data >> 32U) | flag << 32U);
  }
}

template <class Block>
void stream_bytes(Block& block, std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes) {
  if constexpr (requires { block.stream(to, from, bytes); }) return block.stream(to, from, bytes);
  block.copy(to, from, bytes);
}

}  // namespace

std::size_t Shape::least_stride(std::uint64_t count, std::uint32_t chunks, std::size_t elem_bytes) {
  constexpr std::size_t kLine = 64;
  return interp::round_up(std::max<std::size_t>((count + chunks - 1) / chunks * elem_bytes, 1), kLine);
}

DataMover::DataMover(const Decoded& program, const Shape& shape, std::span<const RankBuffers> buffers)
    : program_(program),
      shape_(shape),
      buffers_(buffers),
      block_(shape.kernel),
      chunk_elems_((shape.count + program.program.collective.chunks() - 1) / program.program.collective.chunks()) {}

std::uint8_t* DataMover::address(const Place& place, std::uint32_t k, std::size_t half, std::uint64_t& length) const {
  const RankBuffers& rank = buffers_[place.rank];
  const std::uint64_t chunk = place.chunk + k;
  if (place.buffer == Buffer::scratch) {
    const std::size_t copies = program_.scratch_chunks[place.rank] * half;
    return rank.scratch + (copies + (place.packet ? 2 * chunk : chunk)) * shape_.stride;
  }
  std::uint8_t* base = place.buffer == Buffer::output ? rank.output : const_cast<std::uint8_t*>(rank.input);
  if (shape_.regular) return base + chunk * chunk_elems_ * shape_.elem_bytes;
  const std::uint32_t chunks = program_.program.collective.chunks();
  const std::uint64_t begin = std::min(shape_.count, chunk % chunks * chunk_elems_);
  length = std::min(length, std::min(shape_.count - begin, chunk_elems_) * shape_.elem_bytes);
  return base + (chunk / chunks * shape_.count + begin) * shape_.elem_bytes;
}

std::uint64_t DataMover::resolve(const Step& step, std::uint64_t call, std::uint32_t k) {
  const std::size_t half = call % program_.program.halves;
  std::uint64_t length = chunk_elems_ * shape_.elem_bytes;
  from_.clear();
  to_.clear();
  for (const Place& place : program_.sources(step)) from_.push_back(address(place, k, half, length));
  for (const Place& place : program_.targets(step)) to_.push_back(address(place, k, half, length));
  return length;
}

Moved DataMover::move(const Step& step, std::uint64_t call, Position& at) {
  bool moved = false;
  for (; at.chunk < step.count; ++at.chunk, at.offset = 0) {
    const std::uint64_t bytes = resolve(step, call, at.chunk);
    if (!step.packets) {
      whole(step, bytes);
      continue;
    }
    const Moved did = packets(step, call, bytes, at.offset);
    moved |= did != Moved::nothing;
    if (did != Moved::all) return moved ? Moved::part : Moved::nothing;
  }
  return Moved::all;
}

void DataMover::copy(std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes, bool stream) const {
  if (to == from) return;
  if (stream) {
    stream_bytes(block_, to, from, bytes);
  } else {
    cpu::CpuBlock::copy(to, from, bytes);
  }
}

void DataMover::whole(const Step& step, std::uint64_t bytes) {
  constexpr std::uint64_t kTile = 8192;  // stays in the L1 cache
  const auto streams = [&](std::size_t target) {
    return shape_.streams && program_.targets(step)[target].buffer != Buffer::scratch;
  };
  if (from_.size() == 1 && to_.size() == 1) return copy(to_[0], from_[0], bytes, streams(0));
  alignas(64) std::uint8_t stage[kTile];
  for (std::uint64_t at = 0; at < bytes; at += kTile) {
    const std::uint64_t n = std::min(kTile, bytes - at);
    // The sum of all sources but the last. All are read before a target is written: some may be the same place.
    const std::uint8_t* sum = from_[0] + at;
    for (std::size_t i = 1; i + 1 < from_.size(); ++i) {
      block_.reduce(stage, sum, from_[i] + at, n);
      sum = stage;
    }
    if (from_.size() > 1) {
      const std::uint8_t* last = from_.back() + at;
      if (to_.size() == 1) {
        if (streams(0)) {
          block_.reduce_stream(to_[0] + at, sum, last, n);
        } else {
          block_.reduce(to_[0] + at, sum, last, n);
        }
        continue;
      }
      block_.reduce(stage, sum, last, n);
      sum = stage;
    }
    for (std::size_t i = 0; i < to_.size(); ++i) copy(to_[i] + at, sum, n, streams(i));
  }
}

// Moves on at `offset` of a chunk of `bytes` bytes.
Moved DataMover::packets(const Step& step, std::uint64_t call, std::uint64_t bytes, std::uint64_t& offset) {
  const std::uint64_t flag = flag_of(call);
  const std::uint64_t end =
      interp::round_up(std::max<std::uint64_t>(chunk_elems_ * shape_.elem_bytes, kLineData), kLineData);
  alignas(64) std::uint8_t sum[kPiece];
  alignas(64) std::uint8_t next[kPiece];
  const std::uint64_t begun = offset;
  for (; offset < end; offset += std::min<std::uint64_t>(kPiece, end - offset)) {
    const std::uint64_t piece = std::min<std::uint64_t>(kPiece, end - offset);
    const std::uint64_t live = std::min(piece, bytes - std::min(bytes, offset));  // the rest of a short chunk is zeros
    for (std::size_t i = 0; i < from_.size(); ++i) {
      const std::uint8_t* data = from_[i] + offset;
      if (program_.sources(step)[i].packet) {
        if (!load_packets(block_, i == 0 ? sum : next, from_[i] + 2 * offset, piece / kLineData, flag)) {
          return offset != begun ? Moved::part : Moved::nothing;
        }
        data = next;
      } else if (i == 0) {
        cpu::CpuBlock::copy(sum, data, live);
      }
      if (i != 0 && live != 0) block_.reduce(sum, sum, data, live);
    }
    std::fill(sum + live, sum + piece, std::uint8_t{0});
    for (std::size_t i = 0; i < to_.size(); ++i) {
      if (program_.targets(step)[i].packet) {
        store_packets(block_, to_[i] + 2 * offset, sum, piece / kLineData, flag);
      } else {
        cpu::CpuBlock::copy(to_[i] + offset, sum, live);
      }
    }
  }
  return Moved::all;
}

}  // namespace gc3::direct
