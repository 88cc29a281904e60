// Which moves have to wait for which, and the fewest signals that say so.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/compiler/direct/moves.h"
#include "gc3/ir/program.h"

namespace gc3::compiler::direct {

// A position in a threadblock: after its k-th move; 0: at its begin.
struct Edge {
  std::uint32_t from_tb;
  std::uint32_t from;  // after so many moves of from_tb
  std::uint32_t to_tb;
  std::uint32_t to;  // before the move of to_tb with this index; its number of moves: at its end
  bool relaxed;      // nothing has to become visible
};

struct Signals {
  // In an order in which the threadblocks can give and take them. Two edges between the same threadblocks have
  // ascending positions at both ends.
  std::vector<Edge> edges;
  std::vector<std::vector<std::uint32_t>> moves;  // per threadblock, in order: indices of Moves::all
  std::vector<std::vector<bool>> synced;          // per threadblock and move: whether a sync has to precede it
};

// The threadblocks are those of `program`. Moves of `moves.all[k].tb` are executed in their order.
//
// A move waits for the moves whose result it loads, for those that have to load what it overwrites, and for the begin
// of the call on the rank that it loads from or stores to; a rank ends its call when all that do so have done it. What
// follows from an earlier wait is left out, whether of the threadblock itself or of those it has waited for.
Signals place_signals(const ir::Program& program, const Moves& moves);

}  // namespace gc3::compiler::direct
