// Finds one complete schedule of the program, or proves that there is none.
//
// Every threadblock runs until it has to wait, and continues when that wait is over. An event (instruction) that has
// become possible stays possible: a message stays until its only receiver takes it, a free slot until its only sender
// fills it, and a finished step stays finished. So all schedules of a program end in the same state (a marked graph).
// If this one ends with waiting threadblocks, every schedule does: that is a deadlock, found exactly.
//
// One tile is enough. After one tile every connection is empty again, and the next tile repeats the program from the
// same state. So running tile after tile is a complete schedule of any number of tiles. By the argument above no
// schedule of them deadlocks, including those in which threadblocks are in different tiles.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/verify/program.h"

namespace gc3::verify {

// Steps first .. end-1 of a threadblock, run without a pause.
struct Run {
  std::uint32_t tb;
  std::uint32_t first;
  std::uint32_t end;
};

// A topological order of all instructions under program order, dependencies and messages.
using Schedule = std::vector<Run>;

// Proves freedom from deadlock with `slots` FIFO slots per connection, or reports the cycle. If only slots are missing,
// the schedule is complete (for more slots); if no number of slots helps, it is empty.
Schedule find_schedule(const ProgramIndex& index, const Connections& connections, std::uint32_t slots,
                       Findings& findings);

}  // namespace gc3::verify
