// The reductions of the 8-bit floats, which are the same for all instruction sets.
#pragma once

#include "gc3/runtime/cpu/kernels.h"

namespace gc3::cpu {

// Adds the kernels of `type`, one of these. They compute in float and round after each operation.
void enter_float8(KernelSet& set, model::DataType type);

}  // namespace gc3::cpu
