// Which steps may lend what they send: the receiver reads it where it lies with the sender, and nothing is copied for
// it.
//
// A rank may overwrite what it has sent as soon as the step is done; what it has lent, only after the receiver's step.
// So a step may lend a location if every write to it comes before the step, or after the receiver's step, in every
// execution: by the order of a threadblock's steps, by dependencies, and by messages sent and received.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/runtime/interp/plan.h"

namespace gc3::cpu {

// What the receiver of a message does with it where it may be lent: only takes it, or also adds it up or sends it on.
enum class Loan : std::uint8_t { none, moved, combined };

// By step of the rank, in their order in the plan.
std::vector<Loan> steps_that_lend(const interp::Plan& plan, std::uint32_t rank);

}  // namespace gc3::cpu
