#include "gc3/runtime/cpu/kernels.h"

#if defined(GC3_X86_KERNELS)
#include <cpuid.h>
#endif

namespace gc3::cpu {

const KernelSet& baseline_kernels();
#if defined(GC3_X86_KERNELS)
const KernelSet& avx2_kernels();
const KernelSet& avx512_kernels();
#endif

#if defined(GC3_X86_KERNELS)
namespace {

// Not by __builtin_cpu_supports, because older versions of clang do not know this name. What saves its registers is
// checked with AVX2.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

std::vector<const KernelSet*> kernel_sets() {
  std::vector<const KernelSet*> sets = {&baseline_kernels()};
#if defined(GC3_X86_KERNELS)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && has_f16c()) sets.push_back(&avx2_kernels());
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
