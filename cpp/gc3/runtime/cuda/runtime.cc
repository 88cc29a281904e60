#include "gc3/runtime/cuda/runtime.h"

#include <utility>

namespace gc3::cuda {

Result<std::shared_ptr<Runtime>> Runtime::open(const std::string& driver, std::vector<std::string> compilers,
                                               OtherKernels others) {
  auto runtime = std::make_shared<Runtime>();
  GC3_ASSIGN(runtime->driver_, Driver::open(driver));
  GC3_ASSIGN(const int version, runtime->driver_->version());
  runtime->compiler_ = std::make_shared<Nvrtc>(std::move(compilers), version / 1000, std::move(others));
  return runtime;
}

Result<std::shared_ptr<Device>> Runtime::device(int ordinal) {
  const std::lock_guard lock(mutex_);
  const auto known = devices_.find(ordinal);
  if (known != devices_.end()) return known->second;
  GC3_ASSIGN(std::shared_ptr<Device> made, Device::open(driver_, compiler_, ordinal));
  devices_[ordinal] = made;
  return made;
}

}  // namespace gc3::cuda
