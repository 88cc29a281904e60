// Compares the values that the program computes with the postcondition of its collective.
#pragma once

#include "gc3/verify/program.h"
#include "gc3/verify/schedule.h"
#include "gc3/verify/weights.h"

namespace gc3::verify {

// For a program without races, where every schedule computes the same values. `weights`: drawn for this check.
void check_dataflow(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                    const Weights& weights, Findings& findings);

}  // namespace gc3::verify
