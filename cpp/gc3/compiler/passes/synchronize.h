// Synchronisation insertion (002 section 5.2): the schedule as an ir::Program.
#pragma once

#include "gc3/compiler/schedule.h"
#include "gc3/ir/program.h"

namespace gc3::compiler {

// Processing edges inside a threadblock hold by its order, those of a connection by its messages. The others become
// dependencies, less those that others of the same rank imply.
ir::Program synchronize(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                        const Threadblocks& threadblocks, const Order& order);

}  // namespace gc3::compiler
