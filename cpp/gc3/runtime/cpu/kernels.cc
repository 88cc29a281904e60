#include "gc3/runtime/cpu/kernels.h"

namespace gc3::cpu {

const KernelSet& baseline_kernels();
#if defined(GC3_X86_KERNELS)
const KernelSet& avx2_kernels();
const KernelSet& avx512_kernels();
#endif

std::vector<const KernelSet*> kernel_sets() {
  std::vector<const KernelSet*> sets = {&baseline_kernels()};
#if defined(GC3_X86_KERNELS)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) sets.push_back(&avx2_kernels());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    sets.push_back(&avx512_kernels());
  }
#endif
  return sets;
}

const KernelSet& best_kernels() {
  static const KernelSet& best = *kernel_sets().back();
  return best;
}

}  // namespace gc3::cpu
