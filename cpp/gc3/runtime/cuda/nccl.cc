#include "gc3/runtime/cuda/nccl.h"

#include <dlfcn.h>

#include "gc3/base/errors/devices.h"

namespace gc3::cuda {
namespace {

constexpr int kOldest = 22900;

std::string spelled(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

Result<std::shared_ptr<const Nccl>> Nccl::open(const std::vector<std::string>& libraries) {
  std::string tried;
  for (const std::string& name : libraries) {
    tried += (tried.empty() ? "" : ", ") + name;
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    auto nccl = std::make_shared<Nccl>();
    int (*const version)(int*) = reinterpret_cast<int (*)(int*)>(dlsym(handle, "ncclGetVersion"));
    nccl->error_ = reinterpret_cast<const char* (*)(int)>(dlsym(handle, "ncclGetErrorString"));
    nccl->details_ = reinterpret_cast<const char* (*)(NcclComm)>(dlsym(handle, "ncclGetLastError"));
    if (version == nullptr || nccl->error_ == nullptr || nccl->details_ == nullptr) continue;
    if (version(&nccl->version_) != kNcclSuccess) continue;
    if (nccl->version_ < kOldest) {
      tried +=
          " (NCCL " + spelled(nccl->version_) + ", the first with pointers to windows is " + spelled(kOldest) + ")";
      continue;
    }
    bool complete = true;
#define GC3_NCCL_FUNCTION(member, symbol, parameters)                                          \
  nccl->table_.member = reinterpret_cast<decltype(NcclTable::member)>(dlsym(handle, #symbol)); \
  complete = complete && nccl->table_.member != nullptr;
#include "gc3/runtime/cuda/nccl_functions.def"
#undef GC3_NCCL_FUNCTION
    if (complete) return std::shared_ptr<const Nccl>(std::move(nccl));
  }
  return Diagnostic(ErrorCode::NoWindows, "found no usable NCCL; tried " + tried);
}

Status Nccl::check(int result, const std::string& what) const {
  if (result == kNcclSuccess) return {};
  const char* const details = details_(nullptr);
  return Diagnostic(ErrorCode::NoWindows, what + ": " + error_(result) +
                                              (details == nullptr || *details == 0 ? "" : ", " + std::string(details)));
}

}  // namespace gc3::cuda
