// NCCL, loaded on request: GC3 is neither built nor linked against it.
#pragma once

#include <climits>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gc3/base/result.h"

namespace gc3::cuda {

// The few types of nccl.h that the functions need; handles are opaque.
using NcclComm = void*;
using NcclWindow = void*;
struct NcclId {
  char bytes[128];
};
// ncclConfig_t of NCCL 2.14, whose size says so: later versions fill in the members that they have added.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeefU;
  unsigned version = 21400;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // undefined
};
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
inline constexpr int kWindowSymmetric = 1;

struct NcclTable {
#define GC3_NCCL_FUNCTION(member, symbol, parameters) int(*member) parameters = nullptr;
#include "gc3/runtime/cuda/nccl_functions.def"
#undef GC3_NCCL_FUNCTION
};

class Nccl {
 public:
  // The first of `libraries` that exists and is new enough: 2.29 is the first that returns the address of a window.
  static Result<std::shared_ptr<const Nccl>> open(const std::vector<std::string>& libraries);

  const NcclTable* operator->() const { return &table_; }
  // The result of a function as a Status; `what` names the operation.
  Status check(int result, const std::string& what) const;
  // In NCCL's own numbering: 10000 * major + 100 * minor + patch.
  int version() const { return version_; }

 private:
  NcclTable table_;
  const char* (*error_)(int) = nullptr;
  const char* (*details_)(NcclComm) = nullptr;
  int version_ = 0;
};

}  // namespace gc3::cuda
