#include "gc3/runtime/cuda/driver.h"

#include <dlfcn.h>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/devices.h"

namespace gc3::cuda {

Result<std::shared_ptr<const Driver>> Driver::open(const std::string& library) {
  const std::string name = library.empty() ? "libcuda.so.1" : library;
  // Never closed: a driver must not be unloaded while its own threads run.
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Diagnostic(ErrorCode::NoCudaDriver, dlerror());
  auto driver = std::make_shared<Driver>();
#define GC3_CUDA_FUNCTION(member, symbol, parameters)                                                     \
  driver->table_.member = reinterpret_cast<decltype(DriverTable::member)>(dlsym(handle, #symbol));        \
  if (driver->table_.member == nullptr) {                                                                 \
    return Diagnostic(ErrorCode::NoCudaDriver, name + " has no " #symbol ": GC3 needs CUDA 12 or newer"); \
  }
#include "gc3/runtime/cuda/driver_functions.def"
#undef GC3_CUDA_FUNCTION
  const int started = driver->table_.init(0);
  if (started != kCudaSuccess && started != kCudaNoDevice) {
    return Diagnostic(ErrorCode::NoCudaDriver, driver->check(started, name + " does not start").error().message);
  }
  if (started == kCudaSuccess) driver->table_.device_count(&driver->devices_);
  if (driver->devices_ == 0) return Diagnostic(ErrorCode::NoCudaDriver, name + " finds no device");
  return std::shared_ptr<const Driver>(std::move(driver));
}

Status Driver::check(int result, const std::string& what) const {
  if (result == kCudaSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  table_.get_error_name(result, &name);
  table_.get_error_string(result, &text);
  const std::string said = (name == nullptr ? "error " + std::to_string(result) : std::string(name)) +
                           (text == nullptr ? "" : ", " + std::string(text));
  return Diagnostic(result == kCudaOutOfMemory ? ErrorCode::OutOfMemory : ErrorCode::CudaFailed, what + ": " + said);
}

Result<int> Driver::version() const {
  int version = 0;
  GC3_CHECK(check(table_.driver_version(&version), "the driver's version"));
  return version;
}

Result<int> Driver::device_of(std::uint64_t address) const {
  int device = -1;
  if (table_.pointer_attribute(&device, kPointerDeviceOrdinal, address) != kCudaSuccess || device < 0) {
    return Diagnostic(ErrorCode::BadBuffer, "an address that belongs to no CUDA device");
  }
  return device;
}

}  // namespace gc3::cuda
