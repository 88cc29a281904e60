// Memory that the processes of all ranks reach through NCCL's symmetric windows: besides CUDA IPC (rank_engine.h), the
// other way to get pointers into each other's arenas.
//
// NCCL is used only for that: its host functions return the address of another rank's window, and the kernels use it
// like a pointer from CUDA IPC. No device code of NCCL is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gc3/base/result.h"
#include "gc3/runtime/cuda/device.h"
#include "gc3/runtime/cuda/nccl.h"

namespace gc3::cuda {

// A communicator of NCCL among all ranks. Its waits for other ranks end at the timeout.
class Windows {
 public:
  // Made by rank 0; all ranks join with it.
  static Result<std::string> new_id(const Nccl& nccl);
  static Result<std::shared_ptr<Windows>> join(std::shared_ptr<const Nccl> nccl, std::shared_ptr<Device> device,
                                               const std::string& id, std::uint32_t rank, std::uint32_t ranks,
                                               double timeout_s);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // Whether a small window can be made, and all ranks' parts of it have addresses here. Collective.
  Status probe();
  // After `probe`: whether a switch reaches the windows of all ranks at once (NVLink SHARP).
  bool has_switch() const { return has_switch_; }
  int version() const { return nccl_->version(); }

 private:
  friend class Window;
  Windows(std::shared_ptr<const Nccl> nccl, std::shared_ptr<Device> device, std::uint32_t ranks, double timeout_s)
      : nccl_(std::move(nccl)), device_(std::move(device)), ranks_(ranks), timeout_s_(timeout_s) {}
  // The communicator is non-blocking: waits until an operation has finished, or gives the communicator up.
  Status finish(int result, const std::string& what);
  void leave();

  std::shared_ptr<const Nccl> nccl_;
  std::shared_ptr<Device> device_;
  std::uint32_t ranks_;
  double timeout_s_;
  bool has_switch_ = false;
  NcclComm comm_ = nullptr;
};

// A rank's memory in a window, and the addresses of the others' parts.
class Window {
 public:
  Window() = default;
  // Memory of this rank. Every rank gets the same number of bytes.
  static Result<Window> allocate(const std::shared_ptr<Windows>& windows, std::size_t bytes);
  // Makes it a window. Collective, with windows in the same order on all ranks.
  Status open();
  // The address of the memory of a rank on this device.
  Result<std::uint8_t*> of(std::uint32_t rank) const;
  // That of the memory of all ranks through a switch; null: there is none.
  std::uint8_t* through_switch() const;

  Window(Window&& other) noexcept { *this = std::move(other); }
  Window& operator=(Window&& other) noexcept {
    std::swap(windows_, other.windows_);
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    std::swap(window_, other.window_);
    return *this;
  }
  ~Window();
  std::uint8_t* data() const { return base_; }
  std::size_t size() const { return bytes_; }

 private:
  std::shared_ptr<Windows> windows_;
  std::uint8_t* base_ = nullptr;
  std::size_t bytes_ = 0;
  NcclWindow window_ = nullptr;
};

}  // namespace gc3::cuda
