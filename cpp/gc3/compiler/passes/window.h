// The order in which an MPI program makes its calls: each rank posts its messages as the user wrote them, a window of
// so many sends and receives at a time, and waits for all of a window before it posts the next (MPI_Isend, MPI_Irecv,
// MPI_Waitall; a window of one is MPI_Sendrecv).
#pragma once

#include <cstdint>

#include "gc3/compiler/schedule.h"
#include "gc3/ir/program.h"

namespace gc3::compiler {

// Numbers the threadblocks of each rank by their first instructions in the trace: what starts at the same time starts
// in the order of the threadblocks.
Threadblocks in_order_of_use(const Trace& trace, const InstructionDag& dag, Threadblocks threadblocks);

// Gives every rank with more than one window a threadblock of nops, one for each window but the last. A nop waits for
// all instructions of its window, and those of the next window wait for it. `order` is the one of the program, in which
// windows are cut: the program can then still run in this order, so no window waits for a later one.
ir::Program wait_for_windows(const ir::Program& program, const Threadblocks& threadblocks, const Order& order,
                             std::uint32_t window);

}  // namespace gc3::compiler
