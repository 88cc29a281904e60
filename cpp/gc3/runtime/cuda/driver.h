// The CUDA driver, loaded on first use: GC3 is neither built nor linked against CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gc3/base/result.h"

namespace gc3::cuda {

// The few types of cuda.h that the functions need; handles are opaque.
using CUcontext = void*;
using CUmodule = void*;
using CUfunction = void*;
using CUstream = void*;
using CUevent = void*;
using CUgraph = void*;
using CUgraphExec = void*;
using CUdeviceptr = std::uint64_t;
// An operation of cuStreamBatchMemOp, for values of 64 bits.
struct MemoryOperation {
  int operation = 0;
  CUdeviceptr address = 0;
  std::uint64_t value = 0;
  unsigned flags = 0;
  CUdeviceptr alias = 0;
  std::uint64_t unused = 0;
};
struct IpcHandle {
  std::uint64_t words[8];
};

// Numbers of cuda.h.
enum CudaResult : int {
  kCudaSuccess = 0,
  kCudaOutOfMemory = 2,
  kCudaNoDevice = 100,
  kCudaNotReady = 600,
  kCudaPeerAlreadyEnabled = 704
};
enum DeviceAttribute : int {
  kMultiprocessors = 16,
  kMajor = 75,
  kMinor = 76,
  kCooperativeLaunch = 95,
  kStreamValues64 = 122  // cuStreamBatchMemOp with values of 64 bits
};
inline constexpr int kWaitValue64 = 4;
inline constexpr int kWriteValue64 = 5;
inline constexpr unsigned kWaitAtLeast = 0;  // as the difference of signed numbers
inline constexpr unsigned kWaitEqual = 1;
// With a barrier of memory for what the stream has done before. The second version of the functions has no other way.
inline constexpr unsigned kWriteBehindAll = 0;
inline constexpr int kPeerNativeAtomics = 3;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kPointerAccessFlags = 16;
inline constexpr int kCaptureRelaxed = 2;
inline constexpr unsigned kHostPortable = 1;
inline constexpr unsigned kHostMapped = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventNoTiming = 2;
inline constexpr unsigned kIpcLazyPeerAccess = 1;

struct DriverTable {
#define GC3_CUDA_FUNCTION(member, symbol, parameters) int(*member) parameters = nullptr;
#include "gc3/runtime/cuda/driver_functions.def"
#undef GC3_CUDA_FUNCTION
};

class Driver {
 public:
  // Loads `library`; "" is the system's.
  static Result<std::shared_ptr<const Driver>> open(const std::string& library);

  const DriverTable* operator->() const { return &table_; }
  // The result of a function as a Status; `what` names the operation.
  Status check(int result, const std::string& what) const;
  int device_count() const { return devices_; }
  // 1000 * major + 10 * minor of the CUDA that the driver supports.
  Result<int> version() const;
  // The device whose memory an address belongs to.
  Result<int> device_of(std::uint64_t address) const;

 private:
  DriverTable table_;
  int devices_ = 0;
};

}  // namespace gc3::cuda
