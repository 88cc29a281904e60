// A device: its context, memory, streams and kernels.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/types.h"
#include "gc3/runtime/cuda/driver.h"
#include "gc3/runtime/cuda/nvrtc.h"

namespace gc3::cuda {

// The kernels of a protocol and a data type.
struct Kernels {
  CUfunction run = nullptr;
  CUfunction divide = nullptr;
  CUfunction scale = nullptr;
  CUfunction guard = nullptr;
  int blocks_per_multiprocessor = 0;  // blocks of `run` that are resident at once
};

class Device {
 public:
  static Result<std::shared_ptr<Device>> open(std::shared_ptr<const Driver> driver, std::shared_ptr<Nvrtc> compiler,
                                              int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Compiled on first use. Without a protocol: of one-sided programs.
  Result<Kernels> kernels(std::optional<model::Protocol> protocol, model::DataType type);
  // Enables access to the memory of `peer` for kernels of this device.
  Status reach(const Device& peer);
  // Refuses LL128 between this device and another one if the path between them may split its lines.
  Status check_lines(model::Protocol protocol, int peer) const;
  // Refuses one-sided programs between this device and another one whose counters it cannot add to.
  Status check_atomics(int peer) const;
  // Whether its kernels may load from and store to memory of any device.
  bool has_access(const void* memory) const;

  const Driver& driver() const { return *driver_; }
  const std::shared_ptr<const Driver>& shared_driver() const { return driver_; }
  CUcontext context() const { return context_; }
  int ordinal() const { return ordinal_; }
  // Whether streams can wait for values in memory and write them.
  bool has_stream_values() const { return stream_values_ != 0; }
  int multiprocessors() const { return multiprocessors_; }
  std::string describe() const { return "device " + std::to_string(ordinal_) + " (" + name_ + ")"; }

 private:
  Result<bool> has_atomics(int peer) const;
  Device(std::shared_ptr<const Driver> driver, std::shared_ptr<Nvrtc> compiler)
      : driver_(std::move(driver)), compiler_(std::move(compiler)) {}

  std::shared_ptr<const Driver> driver_;
  std::shared_ptr<Nvrtc> compiler_;
  int ordinal_ = 0;
  int handle_ = 0;
  int major_ = 0;
  int minor_ = 0;
  int multiprocessors_ = 0;
  int stream_values_ = 0;
  std::string name_;
  CUcontext context_ = nullptr;
  std::mutex mutex_;  // of the following members
  std::map<std::pair<std::optional<model::Protocol>, model::DataType>, Kernels> kernels_;
  std::vector<CUmodule> modules_;
};

// Makes a device's context current on the calling thread, and restores the previous context at the end.
class Current {
 public:
  explicit Current(const Device& device)
      : driver_(device.driver()), pushed_(driver_->push_context(device.context()) == kCudaSuccess) {}
  ~Current() {
    CUcontext own = nullptr;
    if (pushed_) driver_->pop_context(&own);  // otherwise this would remove the caller's context
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
  bool pushed_;
};

// Zeroed memory of a device, or pinned memory of the host, which devices can access.
class Memory {
 public:
  Memory() = default;
  // `purpose` completes "N bytes for ...". May be called while a stream is being captured.
  static Result<Memory> on(const std::shared_ptr<Device>& device, std::size_t bytes, const std::string& purpose);
  // Memory of a device that another object owns; it is zeroed.
  static Result<Memory> lent(const std::shared_ptr<Device>& device, std::uint8_t* base, std::size_t bytes);
  static Result<Memory> pinned(const std::shared_ptr<Device>& device, std::size_t bytes, const std::string& purpose);
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Memory();

  std::uint8_t* data() const { return base_; }
  std::size_t size() const { return bytes_; }
  // For memory of a device. The copies are complete when they return.
  Status write(const void* from, std::size_t offset, std::size_t bytes) const;
  Status read(void* to, std::size_t offset, std::size_t bytes) const;
  Status clear() const;

 private:
  void swap(Memory& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    std::swap(pinned_, other.pinned_);
    std::swap(lent_, other.lent_);
  }

  std::shared_ptr<Device> device_;
  std::uint8_t* base_ = nullptr;
  std::size_t bytes_ = 0;
  bool pinned_ = false;
  bool lent_ = false;
};

template <class T>
Result<Memory> uploaded(const std::shared_ptr<Device>& device, const std::vector<T>& values, const char* purpose) {
  GC3_ASSIGN(Memory memory, Memory::on(device, values.size() * sizeof(T), purpose));
  GC3_CHECK(memory.write(values.data(), 0, values.size() * sizeof(T)));
  return memory;
}

inline CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// A stream that the engine owns.
class Stream {
 public:
  Stream() = default;
  static Result<Stream> create(const std::shared_ptr<Device>& device);
  Stream(Stream&& other) noexcept { *this = std::move(other); }
  Stream& operator=(Stream&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream();
  CUstream get() const { return stream_; }
  Status synchronize() const;

 private:
  std::shared_ptr<Device> device_;
  CUstream stream_ = nullptr;
};

class Event {
 public:
  Event() = default;
  static Result<Event> create(const std::shared_ptr<Device>& device, bool timed);
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event();
  CUevent get() const { return event_; }

 private:
  std::shared_ptr<Device> device_;
  CUevent event_ = nullptr;
};

// While it exists, this thread may allocate and query events even if a stream is being captured.
class CaptureRelaxed {
 public:
  explicit CaptureRelaxed(const Driver& driver) : driver_(driver) { driver_->exchange_capture_mode(&mode_); }
  ~CaptureRelaxed() { driver_->exchange_capture_mode(&mode_); }
  CaptureRelaxed(const CaptureRelaxed&) = delete;
  CaptureRelaxed& operator=(const CaptureRelaxed&) = delete;

 private:
  const Driver& driver_;
  int mode_ = kCaptureRelaxed;
};

}  // namespace gc3::cuda
