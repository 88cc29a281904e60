// Small programs and machines for tests, whose times can be computed by hand.
#pragma once

#include <utility>

#include "gc3/ir/builder.h"
#include "gc3/sim/simulator.h"

namespace gc3::sim {

using ir::Opcode;

inline constexpr std::uint32_t kNobody = ir::kNoRank;
inline constexpr Time kMicrosecond = 1'000'000;
inline constexpr std::uint32_t kChunks = 16;  // of scratch, where all steps read and write

inline ir::Instruction step(Opcode opcode, std::uint32_t count = 1) {
  ir::Instruction i;
  i.opcode = opcode;
  i.src_buffer = i.dst_buffer = model::Buffer::scratch;
  i.count = count;
  return i;
}

inline ir::Program& built(ir::Builder& b) {
  const auto ranks = static_cast<std::uint32_t>(b.program().ranks.size());
  b.program().collective = model::Collective::builtin(model::CollectiveKind::allreduce, ranks, 1, 0, false).value();
  return b.program();
}

// Rank 0 sends `messages` messages of `count` chunks over ranks 1, 2, ... to the last one.
inline ir::Program chain(std::uint32_t ranks, std::uint32_t messages, std::uint32_t count = 1) {
  ir::Builder b;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    b.rank(kChunks);
    const bool last = r + 1 == ranks;
    b.threadblock(last ? kNobody : r + 1, r == 0 ? kNobody : r - 1, 0);
    for (std::uint32_t m = 0; m < messages; ++m) {
      b.step(step(r == 0 ? Opcode::send : last ? Opcode::recv : Opcode::recv_copy_send, count));
    }
  }
  return built(b);
}

// Two ranks that both receive before they send.
inline ir::Program crossed() {
  ir::Builder b;
  for (std::uint32_t r = 0; r < 2; ++r) {
    b.rank(kChunks);
    b.threadblock(1 - r, 1 - r, 0);
    b.step(step(Opcode::recv));
    b.step(step(Opcode::send));
  }
  return built(b);
}

// Links of 1 GB/s with a latency of 2 us between neighbours, both ways.
inline Machine line(std::uint32_t ranks, std::uint32_t cores = 0) {
  MachineData data;
  data.node_of.assign(ranks, 0);
  data.classes = {{2e-6, 0, 0, false}};
  for (std::uint32_t r = 0; r + 1 < ranks; ++r) {
    for (const auto& [src, dst] : {std::pair(r, r + 1), std::pair(r + 1, r)}) {
      data.links.push_back({src, dst, 0, {static_cast<std::uint32_t>(data.resources.size())}});
      data.resources.push_back({1e9, 0});
    }
  }
  data.cores = cores;
  return std::move(Machine::create(std::move(data)).value());
}

// A threadblock moves 2 GB/s after 1 us; slots of 4000 bytes.
inline Options options(Sharing sharing = Sharing::serial, std::uint32_t slots = 2, bool cut_through = false) {
  Options o;
  o.protocol.slot_bytes = 4000;
  o.protocol.slots = slots;
  o.protocol.op_s = 1e-6;
  o.protocol.cut_through = cut_through;
  o.protocol.line_bytes = 400;
  o.protocol.bytes_per_s.fill(2e9);
  o.start.launch_s = 5e-6;
  o.sharing = sharing;
  o.record = true;
  return o;
}

}  // namespace gc3::sim
