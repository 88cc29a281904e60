// The kernels of hand.h under the names of the interpreter's kernels. GC3_HAND is the schedule.
#include "benchmarks/cuda/hand.h"

#define GC3_RUN_THREADBLOCK(protocol, element) \
  gc3::cuda::hand::run_threadblock<gc3::cuda::hand::Schedule::GC3_HAND, protocol, element>
#include "gc3/runtime/cuda/device/kernel.cu"
