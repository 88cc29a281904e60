// The kernels for any machine.
#define GC3_KERNEL_NAMESPACE baseline
#define GC3_VECTOR_BYTES 16
#include "gc3/runtime/cpu/kernels_impl.h"

namespace gc3::cpu {

const KernelSet& baseline_kernels() {
  static const KernelSet set = baseline::make("baseline");
  return set;
}

}  // namespace gc3::cpu
