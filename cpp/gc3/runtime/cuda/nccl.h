// NCCL, loaded when it is asked for: GC3 is neither built nor linked against it.
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
// ncclConfig_t as NCCL 2.14 had it, and says that it is that one: what later versions have added they fill in.
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
  // The first of `libraries` that there is and that is new enough: 2.29 is the first that says where a window lies.
  static Result<std::shared_ptr<const Nccl>> open(const std::vector<std::string>& libraries);

  const NcclTable* operator->() const { return &table_; }
  // What a function has returned, as a Status; `what` says what was being done.
  Status check(int result, const std::string& what) const;
  // As NCCL numbers itself: 10000 * major + 100 * minor + patch.
  int version() const { return version_; }

 private:
  NcclTable table_;
  const char* (*error_)(int) = nullptr;
  const char* (*details_)(NcclComm) = nullptr;
  int version_ = 0;
};

}  // namespace gc3::cuda
