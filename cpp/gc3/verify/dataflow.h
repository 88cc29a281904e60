// What the program computes, against the postcondition of its collective.
#pragma once

#include "gc3/verify/connections.h"
#include "gc3/verify/findings.h"
#include "gc3/verify/index.h"
#include "gc3/verify/schedule.h"

namespace gc3::verify {

// For a program without races: then what one schedule computes is what all compute.
void check_dataflow(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                    Findings& findings);

}  // namespace gc3::verify
