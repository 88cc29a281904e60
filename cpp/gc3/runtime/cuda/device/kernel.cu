// The kernels: gc3_run_PROTOCOL_TYPE executes a launch, gc3_run_OneSided_TYPE one of a one-sided program,
// gc3_divide_TYPE is the last step of avg, gc3_scale_TYPE the first of premulsum, gc3_guard watches launches of copies.
//
// With GC3_PROTOCOL and GC3_TYPE defined, only the kernels of that protocol and type, which a program needs; else all.
#include "gc3/runtime/cuda/device/cuda_platform.h"
#include "gc3/runtime/cuda/device/guard.h"
#include "gc3/runtime/cuda/device/kernel.h"
#include "gc3/runtime/cuda/device/one_sided.h"

// The function that a block executes; benchmarks replace it.
#if !defined(GC3_RUN_THREADBLOCK)
#define GC3_RUN_THREADBLOCK(protocol, element) gc3::cuda::run_threadblock<protocol, element>
#endif

#define GC3_RUN_KERNEL(protocol, type)                                                                   \
  extern "C" __global__ void __launch_bounds__(gc3::cuda::kThreads, gc3::cuda::kBlocksPerMultiprocessor) \
      gc3_run_##protocol##_##type(const __grid_constant__ gc3::cuda::Launch launch) {                    \
    gc3::cuda::CudaPlatform platform;                                                                    \
    GC3_RUN_THREADBLOCK(gc3::interp::protocol, gc3::cuda::type##_element)(platform, launch, blockIdx.x); \
  }

#define GC3_ONE_SIDED_KERNEL(type)                                                                       \
  extern "C" __global__ void __launch_bounds__(gc3::cuda::kThreads, gc3::cuda::kBlocksPerMultiprocessor) \
      gc3_run_OneSided_##type(const __grid_constant__ gc3::cuda::OneSidedLaunch launch) {                \
    gc3::cuda::CudaPlatform platform;                                                                    \
    gc3::cuda::run_one_sided<gc3::cuda::type##_element>(platform, launch, blockIdx.x);                   \
  }

// The grid has one row per rank.
#define GC3_DIVIDE_KERNEL(type)                                                                      \
  extern "C" __global__ void __launch_bounds__(gc3::cuda::kThreads)                                  \
      gc3_divide_##type(const __grid_constant__ gc3::cuda::Division division) {                      \
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;             \
    gc3::cuda::divide_row<gc3::cuda::type##_element>(division, blockIdx.y, first,                    \
                                                     static_cast<uint64_t>(gridDim.x) * blockDim.x); \
  }

#define GC3_SCALE_KERNEL(type)                                                                      \
  extern "C" __global__ void __launch_bounds__(gc3::cuda::kThreads)                                 \
      gc3_scale_##type(const __grid_constant__ gc3::cuda::Scaling scaling) {                        \
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;            \
    gc3::cuda::scale_row<gc3::cuda::type##_element>(scaling, blockIdx.y, first,                     \
                                                    static_cast<uint64_t>(gridDim.x) * blockDim.x); \
  }

extern "C" __global__ void __launch_bounds__(1) gc3_guard(const __grid_constant__ gc3::cuda::Guard guard) {
  gc3::cuda::CudaPlatform platform;
  gc3::cuda::watch_lanes(platform, guard);
}

#if defined(GC3_TYPE)
#define GC3_RUN_Simple(type) GC3_RUN_KERNEL(Simple, type)
#define GC3_RUN_LL(type) GC3_RUN_KERNEL(LL, type)
#define GC3_RUN_LL128(type) GC3_RUN_KERNEL(LL128, type)
#define GC3_RUN_OneSided(type) GC3_ONE_SIDED_KERNEL(type)
#define GC3_PASTED(protocol, type) GC3_RUN_##protocol(type)
#define GC3_RUN_KERNEL_OF(protocol, type) GC3_PASTED(protocol, type)
#define GC3_DIVIDE_KERNEL_OF(type) GC3_DIVIDE_KERNEL(type)
#define GC3_SCALE_KERNEL_OF(type) GC3_SCALE_KERNEL(type)
GC3_RUN_KERNEL_OF(GC3_PROTOCOL, GC3_TYPE)
GC3_DIVIDE_KERNEL_OF(GC3_TYPE)
GC3_SCALE_KERNEL_OF(GC3_TYPE)
#else
#define GC3_DATA_TYPE(id, name, bytes, kind, part) \
  GC3_RUN_KERNEL(Simple, name)                     \
  GC3_RUN_KERNEL(LL, name)                         \
  GC3_RUN_KERNEL(LL128, name)                      \
  GC3_ONE_SIDED_KERNEL(name)                       \
  GC3_DIVIDE_KERNEL(name)                          \
  GC3_SCALE_KERNEL(name)
#include "gc3/model/types.def"
#endif
