// Assigns each operation a channel, that is the FIFO between its two ranks.
#pragma once

#include <span>
#include <string>

#include "gc3/base/result.h"
#include "gc3/compiler/schedule.h"

namespace gc3::compiler {

// All hops of a chain of fused instructions get the same channel: the lowest on which each threadblock of the chain
// forwards from one peer to one peer. Lanes get disjoint channels. Channels given by the user are kept, and fusions
// that contradict them are dropped.
Result<Channels> assign_channels(const Trace& trace, std::span<const Fusion> fusions);

// The connections, and the connection of each operation.
std::string to_text(const Trace& trace, const Channels& channels);

}  // namespace gc3::compiler
