// Whether a switch can carry as one what the program has put into switch groups (ir::Switched).
//
// A multicast is of one value, sent by one rank to different ranks. An in-switch sum is of what different ranks send to
// one rank, which adds all of it to one chunk before anything else reads or writes that. No message of a group waits
// for another of it, or the switch would wait for itself.
#pragma once

#include <cstddef>
#include <functional>

#include "gc3/verify/program.h"
#include "gc3/verify/schedule.h"

namespace gc3::verify {

// All but the values, for a program without races.
void check_switched(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                    Findings& findings);

// `equal(a, b)`: whether chunks a and b of all messages hold the same value.
void check_multicast_values(const ProgramIndex& index, const Connections& connections, Findings& findings,
                            const std::function<bool(std::size_t, std::size_t)>& equal);

}  // namespace gc3::verify
