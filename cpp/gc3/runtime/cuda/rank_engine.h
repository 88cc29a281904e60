// The CUDA engine of one rank. The arenas of the other ranks are accessed directly if they are in this process, and
// else by CUDA IPC or through a window of NCCL. A proxy carries the messages to ranks on other hosts.
//
// A one-sided program accesses the buffers of other ranks. Those of other processes are copied into memory that all can
// access, a room, and from there: a call for which it lacks space is made once all ranks have got a larger one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/runtime/cuda/launcher.h"
#include "gc3/runtime/cuda/proxy.h"
#include "gc3/runtime/cuda/runtime.h"
#include "gc3/runtime/cuda/windows.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/engine.h"

namespace gc3::cuda {

// What another rank needs to access the arena of this one.
struct ArenaHandle {
  IpcHandle ipc{};                         // with windows all zero
  std::array<std::uint64_t, 2> process{};  // see process_id
  std::uint64_t base = 0;                  // the address in that process
  std::int32_t device = 0;                 // its number in that process
  std::int32_t stream_values = 0;          // whether its streams can wait for values, for copy engines
  std::uint64_t what = 0;                  // the same on all ranks: of a one-sided program, and of a room of it
  std::uint64_t has_switch = 0;            // whether a switch reaches the windows of all
};

// This process among those of all hosts and containers: a random number, and the number of the process, which a fork
// does not inherit.
Result<std::array<std::uint64_t, 2>> process_id();

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
  ~RankEngine();
  // With `windows`, arenas are in a window of NCCL; otherwise CUDA IPC is used. `proxy`: null if all ranks are on one
  // host.
  static Result<std::unique_ptr<RankEngine>> create(const std::shared_ptr<Runtime>& runtime, const ir::Program& program,
                                                    std::uint32_t rank, int device, const Options& options,
                                                    const std::shared_ptr<Windows>& windows = nullptr,
                                                    const std::shared_ptr<Proxy>& proxy = nullptr);
  // The same of a one-sided program, whose ranks are on one host.
  static Result<std::unique_ptr<RankEngine>> create(const std::shared_ptr<Runtime>& runtime,
                                                    const ir::direct::Program& program, std::uint32_t rank, int device,
                                                    const Options& options,
                                                    const std::shared_ptr<Windows>& windows = nullptr,
                                                    const std::shared_ptr<Proxy>& proxy = nullptr);

  // The data that other ranks need to access this one.
  Result<ArenaHandle> handle() const;
  // Takes the handles of all ranks. No rank may enqueue before all have connected, nor free its engine before all
  // others have ended their calls. With windows or a proxy it is collective.
  Status connect(const std::vector<ArenaHandle>& handles, const Interrupted& interrupted = {});

  // Whether a call of a one-sided program needs a larger room, on all ranks the same. If so, each makes one, and gets
  // access to those of the others; once all have it, each uses the rooms. With windows `share` is collective. Ranks
  // that fail on the way, all or some, have the rooms of before, and may try again.
  Result<bool> lacks_room(std::uint64_t count, model::DataType type);
  Result<ArenaHandle> make_room(std::uint64_t count, model::DataType type);
  Status share(const std::vector<ArenaHandle>& rooms);
  void use_rooms();

  // Loads the kernels of a type, and fails if the device cannot hold the program's threadblocks.
  Status load(model::DataType type) const { return launcher_->load(type); }
  // Allocates what a call of this size needs. A thread that makes the calls of several ranks does this for all of them
  // before the first `enqueue`: an allocation may wait for launched ranks, which wait for those that are not launched.
  Status reserve(const void* input, void* output, std::uint64_t count, model::DataType type, model::ReduceOp op);
  // Puts a call of this rank on a stream of its device, and returns.
  Status enqueue(const void* input, void* output, std::uint64_t count, model::DataType type, model::ReduceOp op,
                 const model::Factor& factor, CUstream stream);
  // Waits for all enqueued calls, and fails if one of them has failed. After a failure, here or in `enqueue`, the
  // counters of the ranks differ, so all later calls fail with the same error.
  Status synchronize(const Interrupted& interrupted = {});
  // Fails if an enqueued call has failed already; does not wait for those that run.
  Status check();
  void abort() const { launcher_->stop(); }
  // Gives up the access to memory of other processes. No call may follow; the own arena remains.
  void disconnect() { peers_.clear(); }

  const interp::Plan& plan() const { return launcher_->plan(); }
  std::uint32_t rank() const { return rank_; }
  const Launcher& launcher() const { return *launcher_; }

 private:
  RankEngine() = default;
  static Result<std::unique_ptr<RankEngine>> create(const std::shared_ptr<Runtime>& runtime,
                                                    std::unique_ptr<Launcher> launcher, std::uint32_t rank, int device,
                                                    const std::shared_ptr<Windows>& windows,
                                                    const std::shared_ptr<Proxy>& proxy);
  Result<ArenaHandle> handle_of(const std::uint8_t* base) const;
  Status check_handles(const std::vector<ArenaHandle>& handles, std::uint64_t what, const char* does) const;
  // The address of another rank's arena or room, which is in `window` if there are windows.
  Result<std::uint8_t*> reach(std::uint32_t peer, const ArenaHandle& handle, const Window& window);
  Result<interp::Run> run_of(std::uint64_t count, model::DataType type) const;
  std::set<std::uint32_t> neighbours() const;
  Status remember(Status status);

  std::mutex mutex_;
  std::uint32_t rank_ = 0;
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<Device> device_;
  // This and the next members are before launcher_, whose destructor ends the launches that use them.
  std::shared_ptr<Proxy> proxy_;
  std::shared_ptr<Windows> windows_;
  Window window_;
  std::uint64_t what_ = 0;  // of its program
  // Memory that all ranks access, in a window if there are windows. Others may have it mapped even if not all have, so
  // it is kept for the next attempt of the ranks.
  struct Room {
    Memory memory;
    Window window;
    bool opened = false;             // the window
    std::vector<std::uint8_t*> all;  // by rank; null: this rank has no access to it yet
    std::uint8_t* switched = nullptr;
    std::uint8_t* data() const { return window.data() != nullptr ? window.data() : memory.data(); }
  };
  std::map<std::uint64_t, Room> rooms_;  // by stride, of a one-sided program: graphs may use earlier ones
  std::uint64_t room_stride_ = 0;        // that the ranks last wanted
  std::vector<OpenedArena> peers_;
  std::unique_ptr<Launcher> launcher_;
  std::tuple<std::uint64_t, model::DataType, model::ReduceOp> last_{};  // call: elements per block, type, reduction
  std::optional<Diagnostic> failed_;
};

}  // namespace gc3::cuda
