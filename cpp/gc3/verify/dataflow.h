// What the program computes, against the postcondition of its collective.
#pragma once

#include "gc3/verify/program.h"
#include "gc3/verify/schedule.h"
#include "gc3/verify/weights.h"

namespace gc3::verify {

// For a program without races: then what one schedule computes is what all compute. `weights`: drawn for this check.
void check_dataflow(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                    const Weights& weights, Findings& findings);

}  // namespace gc3::verify
