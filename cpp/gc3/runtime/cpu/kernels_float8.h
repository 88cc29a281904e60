// The reductions of the 8-bit floats, the same for all instruction sets.
#pragma once

#include "gc3/runtime/cpu/kernels.h"

namespace gc3::cpu {

// Computed through float and rounded after every operation; `type` is one of them.
void enter_float8(KernelSet& set, model::DataType type);

}  // namespace gc3::cpu
