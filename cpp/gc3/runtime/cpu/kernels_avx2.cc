// The kernels for x86 with AVX2 and F16C.
#if defined(__AVX2__) && defined(__F16C__)
#define GC3_KERNEL_NAMESPACE avx2
#define GC3_VECTOR_BYTES 32
#include "gc3/runtime/cpu/kernels_impl.h"

namespace gc3::cpu {

const KernelSet& avx2_kernels() {
  static const KernelSet set = avx2::make("avx2");
  return set;
}

}  // namespace gc3::cpu
#endif
