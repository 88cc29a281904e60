// The entry to CUDA: the driver, the compiler, and the devices opened so far.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cuda/device.h"

namespace gc3::cuda {

class Runtime {
 public:
  // `driver`: the library, "" for the system's; `compilers`: libraries of NVRTC, of which the first that exists is
  // used.
  static Result<std::shared_ptr<Runtime>> open(const std::string& driver, std::vector<std::string> compilers,
                                               OtherKernels others = {});

  Result<std::shared_ptr<Device>> device(int ordinal);
  const Driver& driver() const { return *driver_; }

 private:
  std::shared_ptr<const Driver> driver_;
  std::shared_ptr<Nvrtc> compiler_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Device>> devices_;
};

}  // namespace gc3::cuda
