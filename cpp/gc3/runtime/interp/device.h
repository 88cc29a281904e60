// Macros that let a host compiler and a device compiler compile the interpreter.
#pragma once

#if defined(__CUDACC__)
#define GC3_HOST_DEVICE __device__ __forceinline__
#else
#define GC3_HOST_DEVICE inline
#endif
