// Channels: the FIFO between its two ranks that each operation uses.
#pragma once

#include <span>
#include <string>

#include "gc3/base/result.h"
#include "gc3/compiler/schedule.h"

namespace gc3::compiler {

// Every hop of a chain of fused instructions gets the same channel: the lowest on which each threadblock on the way
// forwards from one peer to one peer. Lanes get disjoint channels. Channels given by the user are kept; a fusion that
// contradicts them is dropped.
Result<Channels> assign_channels(const Trace& trace, std::span<const Fusion> fusions);

// The connections, and which of them each operation uses.
std::string to_text(const Trace& trace, const Channels& channels);

}  // namespace gc3::compiler
