// Synchronisation insertion (002 section 5.2): the schedule as an ir::Program.
#pragma once

#include "gc3/compiler/schedule.h"
#include "gc3/ir/program.h"

namespace gc3::compiler {

// A processing edge within a threadblock is implied by the threadblock's order, and an edge of a connection by its
// messages. All other edges become dependencies, except those that other dependencies of the same rank imply.
ir::Program synchronize(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                        const Threadblocks& threadblocks, const Order& order);

}  // namespace gc3::compiler
