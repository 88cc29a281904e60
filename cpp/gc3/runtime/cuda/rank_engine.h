// The CUDA engine of one rank. The other ranks are in other processes, and their arenas are accessed by CUDA IPC or
// through a window of NCCL.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/runtime/cuda/launcher.h"
#include "gc3/runtime/cuda/runtime.h"
#include "gc3/runtime/cuda/windows.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/engine.h"

namespace gc3::cuda {

using interp::Interrupted;

// An arena of another process, mapped into this one.
class OpenedArena {
 public:
  OpenedArena() = default;
  static Result<OpenedArena> open(const std::shared_ptr<Device>& device, const IpcHandle& handle);
  OpenedArena(OpenedArena&& other) noexcept { *this = std::move(other); }
  OpenedArena& operator=(OpenedArena&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(base_, other.base_);
    return *this;
  }
  ~OpenedArena();
  std::uint8_t* data() const { return base_; }

 private:
  std::shared_ptr<Device> device_;
  std::uint8_t* base_ = nullptr;
};

// Works on buffers of the device, so it has streams instead of the common interface of engines.
class RankEngine {
 public:
  // With `windows`, arenas are in a window of NCCL; otherwise CUDA IPC is used.
  static Result<std::unique_ptr<RankEngine>> create(const std::shared_ptr<Runtime>& runtime, const ir::Program& program,
                                                    std::uint32_t rank, int device, const Options& options,
                                                    const std::shared_ptr<Windows>& windows = nullptr);

  // The data that other ranks need to access this one; empty with windows.
  Result<IpcHandle> handle() const;
  // Takes the handles of all ranks. No rank may enqueue before all have connected. With windows it is collective.
  Status connect(const std::vector<IpcHandle>& handles);

  // Puts a call of this rank on a stream of its device, and returns.
  Status enqueue(const void* input, void* output, std::uint64_t count, model::DataType type, model::ReduceOp op,
                 const model::Factor& factor, CUstream stream);
  // Waits for all enqueued calls, and fails if one of them has failed. After a failure, here or in `enqueue`, the
  // counters of the ranks differ, so all later calls fail with the same error.
  Status synchronize(const Interrupted& interrupted = {});
  void abort() const { launcher_->stop(); }

  const interp::Plan& plan() const { return launcher_->plan(); }
  std::uint32_t rank() const { return rank_; }

 private:
  RankEngine() = default;
  // The address of another rank's arena.
  Result<std::uint8_t*> reach(std::uint32_t peer, const IpcHandle& handle);
  Status remember(Status status);

  std::mutex mutex_;
  std::uint32_t rank_ = 0;
  std::shared_ptr<Device> device_;
  Window window_;  // this and the next member are before launcher_, whose destructor ends the launches that use them
  std::vector<OpenedArena> peers_;
  std::unique_ptr<Launcher> launcher_;
  std::optional<Diagnostic> failed_;
};

}  // namespace gc3::cuda
