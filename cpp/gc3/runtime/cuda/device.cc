#include "gc3/runtime/cuda/device.h"

#include <cstring>

#include "gc3/base/errors/devices.h"
#include "gc3/runtime/cuda/device/launch.h"

namespace gc3::cuda {

Result<std::shared_ptr<Device>> Device::open(std::shared_ptr<const Driver> driver, std::shared_ptr<Nvrtc> compiler,
                                             int ordinal) {
  const Driver& d = *driver;
  if (ordinal < 0 || ordinal >= d.device_count()) {
    return Diagnostic(ErrorCode::BadDevice,
                      "device " + std::to_string(ordinal) + " of " + std::to_string(d.device_count()));
  }
  std::shared_ptr<Device> device(new Device(std::move(driver), std::move(compiler)));
  device->ordinal_ = ordinal;
  GC3_CHECK(d.check(d->device_get(&device->handle_, ordinal), "device " + std::to_string(ordinal)));
  char name[256] = "";
  GC3_CHECK(d.check(d->device_name(name, sizeof name, device->handle_), "name of a device"));
  device->name_ = name;
  int cooperative = 0;
  for (const auto& [attribute, value] :
       {std::pair{kMajor, &device->major_}, std::pair{kMinor, &device->minor_},
        std::pair{kMultiprocessors, &device->multiprocessors_}, std::pair{kCooperativeLaunch, &cooperative},
        std::pair{kStreamValues64, &device->stream_values_}}) {
    GC3_CHECK(d.check(d->device_attribute(value, attribute, device->handle_), "attributes of " + device->describe()));
  }
  if (device->major_ < 8 || cooperative == 0) {
    return Diagnostic(ErrorCode::BadDevice, device->describe() + " has compute capability " +
                                                std::to_string(device->major_) + "." + std::to_string(device->minor_) +
                                                "; expected 8.0 or newer, with cooperative launches");
  }
  GC3_CHECK(d.check(d->retain_context(&device->context_, device->handle_), "context of " + device->describe()));
  return device;
}

Device::~Device() {
  if (context_ == nullptr) return;
  {
    const Current current(*this);
    for (const CUmodule module : modules_) driver()->unload_module(module);
  }
  driver()->release_context(handle_);
}

Result<Kernels> Device::kernels(std::optional<model::Protocol> protocol, model::DataType type) {
  const std::lock_guard lock(mutex_);
  const auto known = kernels_.find({protocol, type});
  if (known != kernels_.end()) return known->second;
  GC3_ASSIGN(const std::string image, compiler_->compile(protocol, type, major_, minor_));
  const Current current(*this);
  const CaptureRelaxed relaxed(driver());
  const std::string kind(protocol ? model::name_of(*protocol) : kOneSided);
  const std::string what = "kernel for " + kind + " " + std::string(model::name_of(type)) + " on " + describe();
  CUmodule module = nullptr;
  GC3_CHECK(driver().check(driver()->load_module(&module, image.data()), what));
  modules_.push_back(module);
  const std::string of_type(model::name_of(type));
  const std::string run = "gc3_run_" + kind + "_" + of_type;
  Kernels kernels;
  GC3_CHECK(driver().check(driver()->get_function(&kernels.run, module, run.c_str()), what));
  GC3_CHECK(driver().check(driver()->get_function(&kernels.divide, module, ("gc3_divide_" + of_type).c_str()), what));
  GC3_CHECK(driver().check(driver()->get_function(&kernels.scale, module, ("gc3_scale_" + of_type).c_str()), what));
  GC3_CHECK(driver().check(driver()->get_function(&kernels.guard, module, "gc3_guard"), what));
  GC3_CHECK(driver().check(
      driver()->occupancy(&kernels.blocks_per_multiprocessor, kernels.run, static_cast<int>(kThreads), 0), what));
  // Asking for it loads a kernel. If its first launch did so, that could wait for streams that wait themselves.
  for (CUfunction beside : {kernels.guard, kernels.divide, kernels.scale}) {
    int blocks = 0;
    GC3_CHECK(driver().check(driver()->occupancy(&blocks, beside, 1, 0), what));
  }
  kernels_[{protocol, type}] = kernels;
  return kernels;
}

Status Device::reach(const Device& peer) {
  if (peer.ordinal_ == ordinal_) return {};
  int can = 0;
  GC3_CHECK(driver().check(driver()->can_access_peer(&can, handle_, peer.handle_), "peer access"));
  if (can == 0) {
    return Diagnostic(ErrorCode::BadDevice, describe() + " cannot access the memory of " + peer.describe());
  }
  const Current current(*this);
  const int enabled = driver()->enable_peer(peer.context_, 0);
  if (enabled == kCudaPeerAlreadyEnabled) return {};
  return driver().check(enabled, "peer access from " + describe() + " to " + peer.describe());
}

// NVLink has native atomics, and PCIe has not.
Result<bool> Device::has_atomics(int peer) const {
  if (peer == ordinal_) return true;
  int handle = 0;
  int atomics = 0;
  GC3_CHECK(driver().check(driver()->device_get(&handle, peer), "device " + std::to_string(peer)));
  GC3_CHECK(driver().check(driver()->peer_attribute(&atomics, kPeerNativeAtomics, handle_, handle), "peer access"));
  return atomics != 0;
}

Status Device::check_atomics(int peer) const {
  GC3_ASSIGN(const bool has, has_atomics(peer));
  if (has) return {};
  return Diagnostic(ErrorCode::BadDevice, "one-sided programs need NVLink between " + describe() + " and device " +
                                              std::to_string(peer) + ": use devices that it joins, or one device");
}

bool Device::has_access(const void* memory) const {
  constexpr int kReadWrite = 3;
  const Current current(*this);
  int flags = 0;
  return driver()->pointer_attribute(&flags, kPointerAccessFlags, address(memory)) == kCudaSuccess &&
         flags == kReadWrite;
}

Status Device::check_lines(model::Protocol protocol, int peer) const {
  if (protocol != model::Protocol::LL128) return {};
  GC3_ASSIGN(const bool has, has_atomics(peer));
  if (has) return {};
  return Diagnostic(ErrorCode::BadDevice, "LL128 needs NVLink between " + describe() + " and device " +
                                              std::to_string(peer) + ": use Simple or LL");
}

Result<Memory> Memory::on(const std::shared_ptr<Device>& device, std::size_t bytes, const std::string& purpose) {
  Memory memory;
  if (bytes == 0) return memory;
  const Driver& driver = device->driver();
  const Current current(*device);
  const CaptureRelaxed relaxed(driver);
  CUdeviceptr base = 0;
  GC3_CHECK(driver.check(driver->allocate(&base, bytes),
                         std::to_string(bytes) + " bytes for " + purpose + " on " + device->describe()));
  memory.device_ = device;
  memory.base_ = reinterpret_cast<std::uint8_t*>(base);
  memory.bytes_ = bytes;
  GC3_CHECK(memory.clear());
  return memory;
}

Result<Memory> Memory::lent(const std::shared_ptr<Device>& device, std::uint8_t* base, std::size_t bytes) {
  Memory memory;
  memory.device_ = device;
  memory.base_ = base;
  memory.bytes_ = bytes;
  memory.lent_ = true;
  GC3_CHECK(memory.clear());
  return memory;
}

Result<Memory> Memory::pinned(const std::shared_ptr<Device>& device, std::size_t bytes, const std::string& purpose) {
  Memory memory;
  const Driver& driver = device->driver();
  const Current current(*device);
  const CaptureRelaxed relaxed(driver);
  void* base = nullptr;
  GC3_CHECK(driver.check(driver->allocate_host(&base, bytes, kHostPortable | kHostMapped),
                         std::to_string(bytes) + " pinned bytes for " + purpose));
  memory.device_ = device;
  memory.base_ = static_cast<std::uint8_t*>(base);
  memory.bytes_ = bytes;
  memory.pinned_ = true;
  std::memset(base, 0, bytes);
  return memory;
}

Memory::~Memory() {
  if (base_ == nullptr || lent_) return;
  const Current current(*device_);
  const CaptureRelaxed relaxed(device_->driver());
  if (pinned_) {
    device_->driver()->release_host(base_);
  } else {
    device_->driver()->release(address(base_));
  }
}

namespace {

// Runs on a separate stream, so that it does not wait for the user's streams and is not captured with them.
template <class Work>
Status at_once(const std::shared_ptr<Device>& device, const Work& work) {
  const Current current(*device);
  const CaptureRelaxed relaxed(device->driver());
  GC3_ASSIGN(const Stream stream, Stream::create(device));
  GC3_CHECK(device->driver().check(work(stream.get()), "a transfer on " + device->describe()));
  return stream.synchronize();
}

}  // namespace

Status Memory::write(const void* from, std::size_t offset, std::size_t bytes) const {
  if (bytes == 0) return {};
  return at_once(device_, [&](CUstream stream) {
    return device_->driver()->host_to_device(address(base_) + offset, from, bytes, stream);
  });
}

Status Memory::read(void* to, std::size_t offset, std::size_t bytes) const {
  if (bytes == 0) return {};
  return at_once(device_, [&](CUstream stream) {
    return device_->driver()->device_to_host(to, address(base_) + offset, bytes, stream);
  });
}

Status Memory::clear() const {
  if (bytes_ == 0) return {};
  return at_once(device_, [&](CUstream stream) { return device_->driver()->fill(address(base_), 0, bytes_, stream); });
}

Result<Stream> Stream::create(const std::shared_ptr<Device>& device) {
  const Current current(*device);
  Stream stream;
  GC3_CHECK(device->driver().check(device->driver()->create_stream(&stream.stream_, kStreamNonBlocking), "a stream"));
  stream.device_ = device;
  return stream;
}

Stream::~Stream() {
  if (stream_ == nullptr || device_ == nullptr) return;
  const Current current(*device_);
  device_->driver()->destroy_stream(stream_);
}

Status Stream::synchronize() const {
  const Current current(*device_);
  return device_->driver().check(device_->driver()->synchronize_stream(stream_), "work on " + device_->describe());
}

Result<Event> Event::create(const std::shared_ptr<Device>& device, bool timed) {
  const Current current(*device);
  Event event;
  GC3_CHECK(
      device->driver().check(device->driver()->create_event(&event.event_, timed ? 0 : kEventNoTiming), "an event"));
  event.device_ = device;
  return event;
}

Event::~Event() {
  if (event_ == nullptr || device_ == nullptr) return;
  const Current current(*device_);
  device_->driver()->destroy_event(event_);
}

}  // namespace gc3::cuda
