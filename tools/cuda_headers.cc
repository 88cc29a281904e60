// Compares the declarations of CUDA and NCCL in driver.h and nccl.h of runtime/cuda with NVIDIA's headers, by the
// compiler. Part of `make cuda-check`; it is not run.
#define __CUDA_API_VERSION_INTERNAL  // all versions of the functions, under the names that libraries export
#include <cuda.h>

#include <cstddef>
#include <type_traits>

#include "gc3/runtime/cuda/device/launch.h"
#include "gc3/runtime/cuda/driver.h"
#include "gc3/runtime/cuda/nccl.h"

namespace {

template <class T>
concept Complete = requires { sizeof(T); };

// Whether a function with a parameter of type B can be called with an argument of type A.
template <class A, class B>
consteval bool alike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using To = std::remove_pointer_t<A>;
    using From = std::remove_pointer_t<B>;
    if constexpr (std::is_function_v<To> || std::is_function_v<From>) {
      return true;
    } else if constexpr (std::is_void_v<To> || std::is_void_v<From> || !Complete<To> || !Complete<From>) {
      return true;  // handles
    } else {
      return alike<std::remove_cv_t<To>, std::remove_cv_t<From>>();
    }
  } else if constexpr (std::is_class_v<A> && (std::is_class_v<B> || std::is_union_v<B>)) {
    return sizeof(A) <= sizeof(B);  // a struct that contains its size may be that of an older version
  } else {
    return std::is_pointer_v<A> == std::is_pointer_v<B> && std::is_class_v<A> == std::is_class_v<B> &&
           sizeof(A) == sizeof(B);
  }
}

template <class Ours, class Theirs>
struct Same;
template <class... A, class R, class... B>
struct Same<int (*)(A...), R(B...)> {
  static consteval bool holds() {
    if constexpr (sizeof...(A) != sizeof...(B) || sizeof(R) != sizeof(int)) {
      return false;
    } else {
      return (alike<A, B>() && ...);
    }
  }
};

using namespace gc3::cuda;

#define GC3_CUDA_FUNCTION(member, symbol, parameters) \
  static_assert(Same<decltype(DriverTable::member), decltype(::symbol)>::holds(), #symbol);
#include "gc3/runtime/cuda/driver_functions.def"
#undef GC3_CUDA_FUNCTION

static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));
static_assert(int{kCudaSuccess} == CUDA_SUCCESS && int{kCudaOutOfMemory} == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(int{kCudaNoDevice} == CUDA_ERROR_NO_DEVICE && int{kCudaNotReady} == CUDA_ERROR_NOT_READY);
static_assert(int{kCudaPeerAlreadyEnabled} == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
static_assert(int{kMultiprocessors} == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(int{kMajor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(int{kMinor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(int{kCooperativeLaunch} == CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
static_assert(int{kStreamValues64} == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
static_assert(kWaitValue64 == CU_STREAM_MEM_OP_WAIT_VALUE_64 && kWriteValue64 == CU_STREAM_MEM_OP_WRITE_VALUE_64);
static_assert(kWaitAtLeast == CU_STREAM_WAIT_VALUE_GEQ && kWaitEqual == CU_STREAM_WAIT_VALUE_EQ);
static_assert(kWriteBehindAll == CU_STREAM_WRITE_VALUE_DEFAULT);
using Waited = decltype(CUstreamBatchMemOpParams::waitValue);
static_assert(sizeof(MemoryOperation) == sizeof(CUstreamBatchMemOpParams));
static_assert(offsetof(MemoryOperation, address) == offsetof(Waited, address));
static_assert(offsetof(MemoryOperation, value) == offsetof(Waited, value64));
static_assert(offsetof(MemoryOperation, flags) == offsetof(Waited, flags));
static_assert(kPeerNativeAtomics == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
static_assert(kPointerDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(kPointerAccessFlags == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS);
static_assert(kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(kHostPortable == CU_MEMHOSTALLOC_PORTABLE && kHostMapped == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING && kEventNoTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kIpcLazyPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

}  // namespace

#if __has_include(<nccl.h>)
// The types of CUDA's run time in nccl.h; GC3 calls no function that uses them.
#define __CUDA_RUNTIME_H__
#define __CUDA_FP16_H__
using cudaStream_t = CUstream_st*;
#include <nccl.h>
extern "C" ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**);  // nccl_device/core.h

namespace {

#define GC3_NCCL_FUNCTION(member, symbol, parameters) \
  static_assert(Same<decltype(NcclTable::member), decltype(::symbol)>::holds(), #symbol);
#include "gc3/runtime/cuda/nccl_functions.def"
#undef GC3_NCCL_FUNCTION
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(kNcclSuccess == int{ncclSuccess} && kNcclInProgress == int{ncclInProgress});
static_assert(kWindowSymmetric == NCCL_WIN_COLL_SYMMETRIC && NcclConfig{}.magic == NCCL_API_MAGIC);
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));

}  // namespace
#endif
