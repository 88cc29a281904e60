// One complete schedule of the program, or the proof that there is none.
//
// Every threadblock runs until it meets a wait, and is taken up again when that wait is over. An event (instruction)
// once possible stays possible whatever the others do: a message stays until its only receiver takes it, a free slot
// until its only sender fills it, a finished step stays finished. So all schedules of a program end in the same place
// (a marked graph), and if this one ends with waiting threadblocks, every one does: a deadlock, found exactly.
//
// One tile is enough. After one tile every connection is empty again and the next tile repeats the program from the
// same state, so running tile after tile is a complete schedule of any number of tiles; by the argument above then no
// schedule of them deadlocks, in particular none in which threadblocks are in different tiles.
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

// Proves freedom from deadlock with `slots` FIFO slots per connection, or reports the cycle. The schedule is complete
// also when only slots are missing (one for more slots), and empty when no number of slots helps.
Schedule find_schedule(const ProgramIndex& index, const Connections& connections, std::uint32_t slots,
                       Findings& findings);

}  // namespace gc3::verify
