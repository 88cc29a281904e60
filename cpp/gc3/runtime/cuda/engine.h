// The CUDA engine of one process: all ranks of a program on devices of this process, several per device if needed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/runtime/cuda/launcher.h"
#include "gc3/runtime/cuda/runtime.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/engine.h"

namespace gc3::cuda {

using interp::Interrupted;

// Calls through the common interface work on copies of their buffers, from which the last result is copied back.
class Engine final : public interp::Engine<interp::Call> {
 public:
  // Ranks are assigned to `devices` in equal runs: of 8 ranks on {0, 1}, the first 4 run on device 0.
  static Result<std::unique_ptr<Engine>> create(const std::shared_ptr<Runtime>& runtime, const ir::Program& program,
                                                const std::vector<int>& devices, const Options& options) {
    GC3_ASSIGN(std::unique_ptr<Launcher> launcher, Launcher::create(program, options));
    return create(runtime, std::move(launcher), devices);
  }
  static Result<std::unique_ptr<Engine>> create(const std::shared_ptr<Runtime>& runtime,
                                                const ir::direct::Program& program, const std::vector<int>& devices,
                                                const Options& options) {
    GC3_ASSIGN(std::unique_ptr<Launcher> launcher, Launcher::create(program, options));
    return create(runtime, std::move(launcher), devices);
  }

  // Puts a call on buffers of the devices on `streams`, one per device in the order of devices(), and returns.
  Status enqueue(const interp::Call& call, const std::vector<CUstream>& streams);
  // Waits for the enqueued calls and returns their status.
  Status synchronize(const Interrupted& interrupted = {});

  Status run(const interp::Call& call, const Interrupted& interrupted = {}) override;
  // As `time`, but all runs are launched as one CUDA graph, and each gets an equal share of its time.
  Result<std::vector<double>> time_graph(const interp::Call& call, std::uint32_t warmup, std::uint32_t iterations,
                                         const Interrupted& interrupted = {});
  void abort() override { launcher_->stop(); }

  const interp::Plan& plan() const override { return launcher_->plan(); }
  const interp::FifoGeometry& geometry() const { return launcher_->geometry(); }
  const Launcher& launcher() const { return *launcher_; }
  std::vector<int> devices() const;
  int device_of(std::uint32_t rank) const { return device_of_[rank]; }

 private:
  Engine() = default;
  static Result<std::unique_ptr<Engine>> create(const std::shared_ptr<Runtime>& runtime, std::unique_ptr<Launcher> made,
                                                const std::vector<int>& devices);
  Result<std::vector<double>> times(const interp::Call& call, std::uint32_t warmup, std::uint32_t iterations,
                                    const Interrupted& interrupted) override;
  // `work(on the copies)`, after `warmup` runs.
  template <class Work>
  Result<std::vector<double>> on_copies(const interp::Call& call, std::uint32_t warmup, const Interrupted& interrupted,
                                        const Work& work);
  Result<std::vector<double>> launches(const interp::Call& call, std::uint32_t iterations,
                                       const Interrupted& interrupted);
  Result<std::vector<double>> replays(const interp::Call& call, std::uint32_t iterations,
                                      const Interrupted& interrupted);
  std::vector<CUstream> own_streams() const;

  std::mutex mutex_;
  std::unique_ptr<Launcher> launcher_;
  std::vector<int> device_of_;  // by rank
  std::vector<Stream> streams_;
};

}  // namespace gc3::cuda
