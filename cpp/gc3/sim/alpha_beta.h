// The alpha-beta cost of a program (001 sections 2 and 3): ranks proceed in steps, a step costs a latency and as many
// rounds as its busiest resource needs.
//
// A program does not say which step a message belongs to. Two readings exist, and either can be cheaper:
//   split    a connection carries one message per step, as in a pipeline
//   merged   a connection carries in one step all that was there to be sent
#pragma once

#include <cstdint>

#include "gc3/base/result.h"
#include "gc3/sim/simulator.h"

namespace gc3::sim {

struct Steps {
  std::uint64_t steps = 0;   // S
  std::uint64_t rounds = 0;  // R: of all steps together
  Time latency = 0;          // S times alpha, where all links have the same
};

struct AlphaBeta {
  Steps split;
  Steps merged;
};

// `round_bytes_per_s`: what carries one chunk in a round; a resource carries as many chunks as its rate is a multiple.
Result<AlphaBeta> alpha_beta(const Simulator& simulator, double round_bytes_per_s);

}  // namespace gc3::sim
