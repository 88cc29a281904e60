// Channels and threadblocks of programs whose author assigned the threadblocks (sendtb=, recvtb=).
#pragma once

#include <span>

#include "gc3/base/result.h"
#include "gc3/compiler/schedule.h"

namespace gc3::compiler {

// The threadblocks that the user assigned; chooses their channels too. Fusions must already agree with the blocks.
struct ManualSchedule {
  Channels channels;
  Threadblocks threadblocks;
};
Result<ManualSchedule> place_manually(const Trace& trace, const InstructionDag& dag, std::span<const Fusion> fusions);

}  // namespace gc3::compiler
