// The CUDA engine of one process: all ranks of a program on devices of this process, several per device if needed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/runtime/cuda/launcher.h"
#include "gc3/runtime/cuda/runtime.h"
#include "gc3/runtime/interp/call.h"

namespace gc3::cuda {

class Engine {
 public:
  using Interrupted = std::function<bool()>;

  // Ranks are assigned to `devices` in equal runs: of 8 ranks on {0, 1}, the first 4 run on device 0.
  static Result<std::unique_ptr<Engine>> create(const std::shared_ptr<Runtime>& runtime, const ir::Program& program,
                                                const std::vector<int>& devices, const Options& options);

  // Puts a call on buffers of the devices on `streams`, one per device in the order of devices(), and returns.
  Status enqueue(const interp::Call& call, const std::vector<CUstream>& streams);
  // Waits for the enqueued calls and returns their status.
  Status synchronize(const Interrupted& interrupted = {});
  // Seconds of each of `iterations` runs on copies of buffers of the host, which get the last result. With `graph` all
  // of them are launched as one CUDA graph, and each gets an equal share of its time.
  Result<std::vector<double>> time_on_host(const interp::Call& call, std::uint32_t warmup, std::uint32_t iterations,
                                           bool graph, const Interrupted& interrupted = {});
  void abort() const { launcher_->stop(); }

  const interp::Plan& plan() const { return launcher_->plan(); }
  const interp::FifoGeometry& geometry() const { return launcher_->geometry(); }
  std::vector<int> devices() const;
  int device_of(std::uint32_t rank) const { return device_of_[rank]; }

 private:
  Engine() = default;
  Result<std::vector<double>> time_launches(const interp::Call& call, std::uint32_t iterations,
                                            const Interrupted& interrupted);
  Result<std::vector<double>> time_graph(const interp::Call& call, std::uint32_t iterations,
                                         const Interrupted& interrupted);
  std::vector<CUstream> own_streams() const;

  std::mutex mutex_;
  std::unique_ptr<Launcher> launcher_;
  std::vector<int> device_of_;  // by rank
  std::vector<Stream> streams_;
};

}  // namespace gc3::cuda
