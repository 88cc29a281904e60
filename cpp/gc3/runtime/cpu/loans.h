// Which steps may lend the data that they send: the receiver reads it in the sender's memory, and no copy is made.
//
// A rank may overwrite sent data as soon as the step is finished, but lent data only after the receiver's step. So a
// step may lend a location if every write to it comes before the step, or after the receiver's step, in every
// execution: by the order of a threadblock's steps, by dependencies, and by messages sent and received. Where the plan
// has the steps of one rank alone, messages are not followed.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/runtime/interp/plan.h"

namespace gc3::cpu {

// What the receiver does with a message that may be lent: only stores it, or also reduces or forwards it.
enum class Loan : std::uint8_t { none, moved, combined };

// By step of the rank, in their order in the plan.
std::vector<Loan> steps_that_lend(const interp::Plan& plan, std::uint32_t rank);

}  // namespace gc3::cpu
