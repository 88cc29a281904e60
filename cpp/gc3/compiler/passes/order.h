// The order in which instructions run.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/compiler/schedule.h"

namespace gc3::compiler {

// A global topological order: lowest step first, then lowest dependency depth, then highest reverse depth. In this
// order no connection ever has more than `slots` messages in flight, and messages are received in the order sent. So
// running it in sequence needs at most `slots` FIFO slots. Threadblocks run parts of one such order and cannot
// deadlock.
Order order_instructions(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                         const Threadblocks& threadblocks, std::uint32_t slots);
// The order in which the user wrote the operations. It is complete for unfused DAGs with one slot.
Order trace_order(const Trace& trace, const InstructionDag& dag, const Threadblocks& threadblocks);

std::string to_text(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                    const Threadblocks& threadblocks, const Order& order);

}  // namespace gc3::compiler
