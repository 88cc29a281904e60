// The order in which a program adds: programs of equal orders give the same bits, also where additions round.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gc3/ir/program.h"

namespace gc3::ir {

// The number of chunks per block, then a number for each output chunk of all ranks: how its value is made of the
// inputs, operands in their order. Programs of the same collective and mode with equal numbers give equal bits; others
// may. None: a step waits for ever, or the program is no valid one.
std::optional<std::vector<std::uint64_t>> addition_order(const Program& program);

}  // namespace gc3::ir
