// Threadblocks: which of its rank executes each instruction.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/base/result.h"
#include "gc3/compiler/schedule.h"

namespace gc3::compiler {

// Whether no rank has more than `limit` threadblocks (0: any number); the error names the heaviest rank.
Status check_limit(const Threadblocks& threadblocks, std::uint32_t limit);

// One threadblock per unique (send peer, receive peer, channel). Where a rank would have more than `limit` (0: none),
// threadblocks that only send are joined with ones that only receive; more than that is an error.
Result<Threadblocks> assign_threadblocks(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                                         std::uint32_t limit);
// The threadblocks with their peers.
std::string to_text(const Trace& trace, const Channels& channels, const Threadblocks& threadblocks);

}  // namespace gc3::compiler
