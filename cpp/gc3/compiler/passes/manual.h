// Channels and threadblocks of programs whose author has chosen them (sendtb=, recvtb=).
#pragma once

#include <span>

#include "gc3/base/result.h"
#include "gc3/compiler/schedule.h"

namespace gc3::compiler {

// Whether the user placed the operations of this trace on threadblocks.
bool is_manual(const Trace& trace);

// Threadblocks as the user gave them; chooses the channels too. Fusions must already agree with the blocks.
struct ManualSchedule {
  Channels channels;
  Threadblocks threadblocks;
};
Result<ManualSchedule> place_manually(const Trace& trace, const InstructionDag& dag, std::span<const Fusion> fusions);

}  // namespace gc3::compiler
