// What the interpreter's text needs to be compiled by a host and by a device compiler alike.
#pragma once

#if defined(__CUDACC__)
#define GC3_HOST_DEVICE __device__ __forceinline__
#else
#define GC3_HOST_DEVICE inline
#endif
