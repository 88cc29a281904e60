#include "gc3/runtime/cuda/windows.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "gc3/base/errors/devices.h"
#include "gc3/runtime/core/waiting/wait_policy.h"

namespace gc3::cuda {

constexpr std::size_t kProbe = std::size_t{2} << 20U;  // bytes of a window that is only tried

Result<std::string> Windows::new_id(const Nccl& nccl) {
  NcclId id{};
  GC3_CHECK(nccl.check(nccl->unique_id(&id), "an id for the ranks to join with"));
  return std::string(id.bytes, sizeof id.bytes);
}

Result<std::shared_ptr<Windows>> Windows::join(std::shared_ptr<const Nccl> nccl, std::shared_ptr<Device> device,
                                               const std::string& id, std::uint32_t rank, std::uint32_t ranks,
                                               double timeout_s) {
  NcclId joined{};
  if (id.size() != sizeof joined.bytes) {
    return Diagnostic(ErrorCode::NoWindows, "an id of " + std::to_string(id.size()) + " bytes");
  }
  std::memcpy(joined.bytes, id.data(), sizeof joined.bytes);
  std::shared_ptr<Windows> made(new Windows(std::move(nccl), std::move(device), ranks, timeout_s));
  const Current current(*made->device_);
  NcclConfig config;
  const int begun =
      (*made->nccl_)->join(&made->comm_, static_cast<int>(ranks), joined, static_cast<int>(rank), &config);
  GC3_CHECK(made->finish(begun, "the ranks' NCCL communicator"));
  return made;
}

Windows::~Windows() { leave(); }

void Windows::leave() {
  if (comm_ == nullptr) return;
  const Current current(*device_);
  // Not ncclCommDestroy, which may wait for other ranks: no data was ever sent, and windows were released before.
  (*nccl_)->abort(std::exchange(comm_, nullptr));
}

Status Windows::finish(int result, const std::string& what) {
  core::WaitClock clock;
  while (result == kNcclInProgress) {
    if (clock.waited_s() > timeout_s_) {
      leave();  // background work must not write to memory that the caller releases now
      return Diagnostic(ErrorCode::NoWindows, what + ": not there after " + std::to_string(timeout_s_) + " s");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    GC3_CHECK(nccl_->check((*nccl_)->state(comm_, &result), what));
  }
  return nccl_->check(result, what);
}

Status Windows::probe() {
  const std::shared_ptr<Windows> self(this, [](Windows*) {});  // lives longer than the window
  GC3_ASSIGN(Window window, Window::allocate(self, kProbe));
  GC3_CHECK(window.open());
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) GC3_CHECK(window.of(rank));
  has_switch_ = window.through_switch() != nullptr;
  return {};
}

Result<Window> Window::allocate(const std::shared_ptr<Windows>& windows, std::size_t bytes) {
  const Current current(*windows->device_);
  const CaptureRelaxed relaxed(windows->device_->driver());
  void* base = nullptr;
  GC3_CHECK(windows->nccl_->check((*windows->nccl_)->allocate(&base, bytes),
                                  std::to_string(bytes) + " bytes for a window on " + windows->device_->describe()));
  Window window;
  window.windows_ = windows;
  window.base_ = static_cast<std::uint8_t*>(base);
  window.bytes_ = bytes;
  return window;
}

Status Window::open() {
  const Current current(*windows_->device_);
  const CaptureRelaxed relaxed(windows_->device_->driver());
  const int begun = (*windows_->nccl_)->register_window(windows_->comm_, base_, bytes_, &window_, kWindowSymmetric);
  GC3_CHECK(windows_->finish(begun, "a window of NCCL"));
  if (window_ == nullptr) {
    return Diagnostic(ErrorCode::NoWindows, "NCCL makes no symmetric windows here");
  }
  return {};
}

Result<std::uint8_t*> Window::of(std::uint32_t rank) const {
  void* at = nullptr;
  GC3_CHECK(windows_->nccl_->check((*windows_->nccl_)->peer_pointer(window_, 0, static_cast<int>(rank), &at),
                                   "the window of rank " + std::to_string(rank)));
  if (at == nullptr) {
    return Diagnostic(ErrorCode::NoWindows, windows_->device_->describe() + " does not reach the window of rank " +
                                                std::to_string(rank) + " by loads and stores");
  }
  return static_cast<std::uint8_t*>(at);
}

std::uint8_t* Window::through_switch() const {
  void* at = nullptr;
  const int result = (*windows_->nccl_)->switch_pointer(window_, 0, &at);
  return result == kNcclSuccess ? static_cast<std::uint8_t*>(at) : nullptr;
}

Window::~Window() {
  if (base_ == nullptr) return;
  const Current current(*windows_->device_);
  const CaptureRelaxed relaxed(windows_->device_->driver());
  if (window_ != nullptr && windows_->comm_ != nullptr) (*windows_->nccl_)->deregister_window(windows_->comm_, window_);
  (*windows_->nccl_)->release(base_);
}

}  // namespace gc3::cuda
