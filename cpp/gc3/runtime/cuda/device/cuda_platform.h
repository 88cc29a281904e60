// The platform of a CUDA device: threads, warps, memory with order, time.
//
// DeviceBlock and everything below it are written against this interface; test_platform.h has the same for a host.
// `each(f)` calls f(lane) for every lane of the warp, here one lane per thread, and PerLane<T> is a T for each of them.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/elements.h"
#include "gc3/runtime/cuda/device/shared.h"
#include "gc3/runtime/cuda/device/vec.h"

namespace gc3::cuda {

class CudaPlatform {
 public:
  static constexpr uint32_t kLanes = 32;
  template <class T>
  struct PerLane {
    T value;
    __device__ __forceinline__ T& operator[](uint32_t) { return value; }
    __device__ __forceinline__ const T& operator[](uint32_t) const { return value; }
  };

  __device__ __forceinline__ static uint32_t thread() { return threadIdx.x; }
  __device__ __forceinline__ static uint32_t threads() { return blockDim.x; }
  __device__ __forceinline__ static uint32_t warp() { return threadIdx.x / kLanes; }
  __device__ __forceinline__ static uint32_t warps() { return blockDim.x / kLanes; }
  __device__ __forceinline__ static Shared& shared() {
    __shared__ Shared block;
    return block;
  }

  __device__ __forceinline__ static void sync() { __syncthreads(); }
  __device__ __forceinline__ static bool sync_or(bool mine) { return __syncthreads_or(mine ? 1 : 0) != 0; }
  template <class F>
  __device__ __forceinline__ static void each(F f) {
    f(threadIdx.x % kLanes);
  }
  __device__ __forceinline__ static bool all(const PerLane<bool>& mine) {
    return __all_sync(0xffffffffU, mine.value ? 1 : 0) != 0;
  }
  // A value that is the same on all lanes, taken from the first one.
  __device__ __forceinline__ static bool first(bool mine) { return __shfl_sync(0xffffffffU, mine ? 1 : 0, 0) != 0; }
  // Makes the lanes converge, so that their next stores are one access of the warp.
  __device__ __forceinline__ static void converge() { __syncwarp(); }
  __device__ __forceinline__ static bool leads() { return threadIdx.x % kLanes == 0; }

  // Counters and flags. `system` says whether another device takes part.
  __device__ __forceinline__ static uint64_t load_acquire(const uint64_t* at, bool system) {
    uint64_t value;
    if (system) {
      asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    } else {
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    }
    return value;
  }
  __device__ __forceinline__ static void store_release(uint64_t* at, uint64_t value, bool system) {
    if (system) {
      asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
    } else {
      asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
    }
  }
  // Adds with acquire and release, and returns what was there.
  __device__ __forceinline__ static uint64_t add(uint64_t* at, uint64_t value, bool system) {
    uint64_t before;
    if (system) {
      asm volatile("atom.add.acq_rel.sys.global.u64 %0, [%1], %2;" : "=l"(before) : "l"(at), "l"(value) : "memory");
    } else {
      asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], %2;" : "=l"(before) : "l"(at), "l"(value) : "memory");
    }
    return before;
  }
  // With acquire; false: it is not `expected`.
  __device__ __forceinline__ static bool exchange(uint64_t* at, uint64_t expected, uint64_t value, bool system) {
    uint64_t before;
    if (system) {
      asm volatile("atom.cas.acquire.sys.global.b64 %0, [%1], %2, %3;"
                   : "=l"(before)
                   : "l"(at), "l"(expected), "l"(value)
                   : "memory");
    } else {
      asm volatile("atom.cas.acquire.gpu.global.b64 %0, [%1], %2, %3;"
                   : "=l"(before)
                   : "l"(at), "l"(expected), "l"(value)
                   : "memory");
    }
    return before == expected;
  }
  // Of a counter that says what was read: not before it, and without a wait for what was written.
  __device__ __forceinline__ static void store_read(uint64_t* at, uint64_t value, bool system) {
    if (system) {
      asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
    } else {
      asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
    }
  }
  __device__ __forceinline__ static void fence(bool system) {
    if (system) {
      asm volatile("fence.acq_rel.sys;" ::: "memory");
    } else {
      asm volatile("fence.acq_rel.gpu;" ::: "memory");
    }
  }

  // The lines of LL and LL128: volatile accesses go past the L1 cache, and each 8 bytes of them move as one.
  __device__ __forceinline__ static Vec load_line(const uint8_t* at) {
    Vec v;
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.low), "=l"(v.high) : "l"(at) : "memory");
    return v;
  }
  __device__ __forceinline__ static void store_line(uint8_t* at, const Vec& v) {
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(v.low), "l"(v.high) : "memory");
  }
  __device__ __forceinline__ static uint64_t load_word(const uint64_t* at) {
    return *static_cast<const volatile uint64_t*>(at);
  }
  __device__ __forceinline__ static void store_word(uint64_t* at, uint64_t value) {
    *static_cast<volatile uint64_t*>(at) = value;
  }

  // Data: ordered by the flags and semaphores around it.
  __device__ __forceinline__ static Vec load(const uint8_t* at) {
    Vec v;
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.low), "=l"(v.high) : "l"(at) : "memory");
    return v;
  }
  __device__ __forceinline__ static void store(uint8_t* at, const Vec& v) {
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(v.low), "l"(v.high) : "memory");
  }
  template <class T>
  __device__ __forceinline__ static T load_element(const uint8_t* at) {
    return *reinterpret_cast<const T*>(at);
  }
  template <class T>
  __device__ __forceinline__ static void store_element(uint8_t* at, T x) {
    *reinterpret_cast<T*>(at) = x;
  }

  // Through a switch, by the address of the same place of all ranks: multimem of PTX 8.1, for devices of
  // capability 9.0. The order in which a switch adds up is not specified; sums of 16-bit numbers are rounded once.
#if __CUDA_ARCH__ >= 900 && (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 1))
  static constexpr bool kHasSwitch = true;
#define GC3_SUM "multimem.ld_reduce.relaxed.sys.global.add"
  template <class Element>
  __device__ __forceinline__ static Vec load_sum(const uint8_t* at) {
    Vec v;
    if constexpr (Element::kSwitchSum == SwitchSum::f32) {
      float x[4];
      asm volatile(GC3_SUM ".v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                   : "l"(at)
                   : "memory");
      memcpy(&v, x, sizeof v);
    } else if constexpr (Element::kSwitchSum == SwitchSum::f16 || Element::kSwitchSum == SwitchSum::bf16) {
      uint32_t x[4];
      if constexpr (Element::kSwitchSum == SwitchSum::f16) {
        asm volatile(GC3_SUM ".acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "l"(at)
                     : "memory");
      } else {
        asm volatile(GC3_SUM ".acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "l"(at)
                     : "memory");
      }
      memcpy(&v, x, sizeof v);
    } else if constexpr (Element::kSwitchSum == SwitchSum::f64) {
      double x[2];
      for (int i = 0; i < 2; ++i) asm volatile(GC3_SUM ".f64 %0, [%1];" : "=d"(x[i]) : "l"(at + 8 * i) : "memory");
      memcpy(&v, x, sizeof v);
    } else if constexpr (Element::kSwitchSum == SwitchSum::u32) {
      uint32_t x[4];
      for (int i = 0; i < 4; ++i) asm volatile(GC3_SUM ".u32 %0, [%1];" : "=r"(x[i]) : "l"(at + 4 * i) : "memory");
      memcpy(&v, x, sizeof v);
    } else {
      asm volatile(GC3_SUM ".u64 %0, [%1];" : "=l"(v.low) : "l"(at) : "memory");
      asm volatile(GC3_SUM ".u64 %0, [%1];" : "=l"(v.high) : "l"(at + 8) : "memory");
    }
    return v;
  }
#undef GC3_SUM
  __device__ __forceinline__ static void store_all(uint8_t* at, const Vec& v) {
    float x[4];
    memcpy(x, &v, sizeof v);
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(x[0]), "f"(x[1]),
                 "f"(x[2]), "f"(x[3])
                 : "memory");
  }
#else
  static constexpr bool kHasSwitch = false;
#endif
  __device__ __forceinline__ static void fence_aliases() { asm volatile("fence.proxy.alias;" ::: "memory"); }

  __device__ __forceinline__ static uint32_t load_stop(const uint32_t* at) {
    return *static_cast<const volatile uint32_t*>(at);
  }
  __device__ __forceinline__ static void store_stop(uint32_t* at, uint32_t value) {
    *static_cast<volatile uint32_t*>(at) = value;
  }
  __device__ __forceinline__ static uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
  }
  __device__ __forceinline__ static void relax() {}
};

}  // namespace gc3::cuda
