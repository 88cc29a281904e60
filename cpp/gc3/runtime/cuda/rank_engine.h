// The CUDA engine of one rank: the other ranks are in other processes, their arenas reached by CUDA IPC or through a
// window of NCCL.
#pragma once

#include <cstdint>
#include <functional>
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

namespace gc3::cuda {

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

class RankEngine {
 public:
  using Interrupted = std::function<bool()>;

  // With `windows` arenas lie in a window of those; else CUDA IPC is used.
  static Result<std::unique_ptr<RankEngine>> create(const std::shared_ptr<Runtime>& runtime, const ir::Program& program,
                                                    std::uint32_t rank, int device, const Options& options,
                                                    const std::shared_ptr<Windows>& windows = nullptr);

  // What the other ranks need in order to reach this one; with windows, nothing.
  Result<IpcHandle> handle() const;
  // The handles of all ranks. No rank may enqueue before all have connected. With windows all ranks do this together.
  Status connect(const std::vector<IpcHandle>& handles);

  // Puts a call of this rank on a stream of its device, and returns.
  Status enqueue(const void* input, void* output, std::uint64_t count, model::DataType type, model::ReduceOp op,
                 const model::Factor& factor, CUstream stream);
  // Waits for what was enqueued and says whether it went well. After a failure, here or in `enqueue`, the ranks'
  // counters no longer agree: every later call fails alike.
  Status synchronize(const Interrupted& interrupted = {});
  void abort() const { launcher_->stop(); }

  const interp::Plan& plan() const { return launcher_->plan(); }
  std::uint32_t rank() const { return rank_; }

 private:
  RankEngine() = default;
  // Where the arena of another rank is.
  Result<std::uint8_t*> reach(std::uint32_t peer, const IpcHandle& handle);
  Status remember(Status status);

  std::mutex mutex_;
  std::uint32_t rank_ = 0;
  std::shared_ptr<Device> device_;
  Window window_;  // this and the next one before launcher_, which ends what still uses them
  std::vector<OpenedArena> peers_;
  std::unique_ptr<Launcher> launcher_;
  std::optional<Diagnostic> failed_;
};

}  // namespace gc3::cuda
