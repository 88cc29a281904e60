// Data races: two unordered accesses to a chunk of one rank, at least one of them a write.
//
// Order is happens-before: program order, dependencies, and messages (steps before a send precede its receive; see
// reachability.h for the send itself). Waits for a free FIFO slot do not count as order: with more slots they vanish.
// Tiles share no memory, so one tile is enough.
#pragma once

#include "gc3/verify/program.h"
#include "gc3/verify/schedule.h"

namespace gc3::verify {

void check_races(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                 Findings& findings);

// Whether the program order and dependencies of each rank order all such accesses by themselves; reports one that they
// do not, which messages may order all the same.
bool ordered_within_ranks(const ProgramIndex& index, const Schedule& schedule, Findings& findings);

}  // namespace gc3::verify
