// The kernels for x86 with AVX-512 (F, BW, DQ).
#if defined(__AVX512BW__) && defined(__AVX512DQ__)
#define GC3_KERNEL_NAMESPACE avx512
#define GC3_VECTOR_BYTES 64
#include "gc3/runtime/cpu/kernels_impl.h"

namespace gc3::cpu {

const KernelSet& avx512_kernels() {
  static const KernelSet set = avx512::make("avx512");
  return set;
}

}  // namespace gc3::cpu
#endif
