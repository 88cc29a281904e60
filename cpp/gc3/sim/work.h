// The time of a threadblock's own work: rates, and what is left of an opcode whose send takes no time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gc3/ir/program.h"
#include "gc3/sim/machine.h"

namespace gc3::sim {

// A rate, as the time per byte.
struct PerByte {
  double ps = 0;
  Time of(std::uint64_t bytes) const { return static_cast<Time>(static_cast<double>(bytes) * ps + 0.5); }
};
// 0: no limit.
inline PerByte per_byte(double bytes_per_s) {
  return {bytes_per_s > 0 ? static_cast<double>(kPicosecondsPerSecond) / bytes_per_s : 0};
}

// The rest of an opcode for a threadblock whose send takes no time: the opcode that does the same without the send; nop
// if that would store nothing.
constexpr ir::Opcode without_sending(const ir::OpcodeInfo& op) {
  for (std::size_t i = 0; i < ir::kOpcodeCount; ++i) {
    const ir::OpcodeInfo& rest = ir::kOpcodes[i];
    const bool same_data = rest.receives == op.receives && rest.reads_local == op.reads_local;
    const bool same_result = rest.writes_local == op.writes_local && rest.reduces == op.reduces;
    if (!rest.sends && same_data && same_result) return static_cast<ir::Opcode>(i);
  }
  return ir::Opcode::nop;
}
inline constexpr std::array<ir::Opcode, ir::kOpcodeCount> kWithoutSending = [] {
  std::array<ir::Opcode, ir::kOpcodeCount> rest{};
  for (std::size_t i = 0; i < ir::kOpcodeCount; ++i) rest[i] = without_sending(ir::kOpcodes[i]);
  return rest;
}();

// The rest of an opcode for a threadblock whose message has been added to the others of its group already.
constexpr ir::Opcode without_receiving(ir::Opcode op) {
  return ir::info(op).sends ? ir::Opcode::send : ir::Opcode::nop;
}

}  // namespace gc3::sim
