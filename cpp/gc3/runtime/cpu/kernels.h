// The arithmetic of reductions on this machine's vector units, selected when the program first uses them.
//
// Integers wrap. Floats of 8 and 16 bits are computed through float and rounded to nearest even after every operation.
// min and max return a NaN if either operand is one, so the result does not depend on the order. Buffers need no
// alignment. The destination may be one of the operands, but must not overlap them otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gc3/model/types.h"

namespace gc3::cpu {

struct Kernel {
  // to[i] = a[i] op b[i] for `bytes` bytes of elements. reduce2 writes the same to a second place. reduce_stream
  // bypasses the caches if possible: CpuBlock::settle() orders that before what follows.
  void (*reduce)(void* to, const void* a, const void* b, std::size_t bytes) = nullptr;
  void (*reduce2)(void* to, void* to2, const void* a, const void* b, std::size_t bytes) = nullptr;
  void (*reduce_stream)(void* to, const void* a, const void* b, std::size_t bytes) = nullptr;
};

// at[i] = at[i] / divisor: the last step of avg. Integer division truncates toward zero.
using Divide = void (*)(void* at, std::size_t bytes, std::uint64_t divisor);

// The kernels of one instruction set, by data type and operation (avg adds, like sum); none where the operation does
// not take the type, see model/types.def.
struct KernelSet {
  const char* name = "";
  Kernel reduce[model::kDataTypes.size()][model::kReduceOps.size()];
  Divide divide[model::kDataTypes.size()];
};

// The sets that this machine can run; the first is the slowest and portable one.
std::vector<const KernelSet*> kernel_sets();
// The fastest of them.
const KernelSet& best_kernels();

}  // namespace gc3::cpu
