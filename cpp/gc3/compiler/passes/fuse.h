// Fusion: a receive whose data the rank only sends on becomes one instruction that receives and sends (002 section
// 4.3).
#pragma once

#include <span>
#include <vector>

#include "gc3/compiler/instruction_dag.h"

namespace gc3::compiler {

// The fusions that the peephole rules allow (rcs, rrcs, rrs), at most one per receive: the send on the longest path.
std::vector<Fusion> find_fusions(const Trace& trace, const ChunkDag& chunks, const InstructionDag& dag);
// The DAG with those fusions applied.
InstructionDag fuse(const Trace& trace, const ChunkDag& chunks, InstructionDag dag, std::span<const Fusion> fusions);

}  // namespace gc3::compiler
