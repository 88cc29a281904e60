// The alpha-beta cost of a program (001 sections 2 and 3): ranks proceed in steps, a step costs a latency and as many
// rounds as its busiest resource needs.
//
// A program does not say which step a message belongs to. Two readings exist, and either can be cheaper:
//   split    a connection carries one message per step, as in a pipeline
//   merged   a connection carries in one step all that was there to be sent
// A synthesizer does say it; its program costs what it says if the program can proceed in those steps.
#pragma once

#include <cstdint>
#include <vector>

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

// The cost where threadblock t sends all that it sends in the step `step_of[t]`, from 1; 0: it sends nothing. An error
// where something would be sent before it can be known.
Result<Steps> alpha_beta_by(const Simulator& simulator, double round_bytes_per_s,
                            const std::vector<std::uint32_t>& step_of);

}  // namespace gc3::sim
