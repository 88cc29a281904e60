// Assigns each instruction to a threadblock of its rank.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/base/result.h"
#include "gc3/compiler/schedule.h"

namespace gc3::compiler {

// Whether no rank has more than `limit` threadblocks (0: no limit); the error names the rank with the most.
Status check_limit(const Threadblocks& threadblocks, std::uint32_t limit);

// One threadblock per unique (send peer, receive peer, channel). If a rank would have more than `limit` (0: no limit),
// threadblocks that only send are joined with threadblocks that only receive. If there are still too many, it is an
// error.
Result<Threadblocks> assign_threadblocks(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                                         std::uint32_t limit);
// The threadblocks with their peers.
std::string to_text(const Trace& trace, const Channels& channels, const Threadblocks& threadblocks);

}  // namespace gc3::compiler
