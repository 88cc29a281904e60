// The alpha-beta cost of a program (001 sections 2 and 3). Ranks proceed in steps; a step costs a latency and as many
// rounds as its busiest resource needs.
//
// A program does not assign messages to steps. There are two ways to do so, and either can be cheaper:
//   split    a connection carries one message per step, as in a pipeline
//   merged   a connection carries in one step all messages that are ready
// A synthesizer assigns them itself; its program has the cost it states if it can proceed in those steps.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/sim/simulator.h"

namespace gc3::sim {

struct Steps {
  std::uint64_t steps = 0;   // S
  std::uint64_t rounds = 0;  // R: of all steps together
  Time latency = 0;          // S times alpha, if all links have the same latency
};

struct AlphaBeta {
  Steps split;
  Steps merged;
};

// `round_bytes_per_s`: the rate that carries one chunk in a round. A resource carries as many chunks as its rate is a
// multiple of this.
Result<AlphaBeta> alpha_beta(const Simulator& simulator, double round_bytes_per_s);

// The cost if threadblock t sends all its messages in step `step_of[t]`, counted from 1; 0: it sends nothing. An error
// if a message would be sent before its data has arrived.
Result<Steps> alpha_beta_by(const Simulator& simulator, double round_bytes_per_s,
                            const std::vector<std::uint32_t>& step_of);

}  // namespace gc3::sim
