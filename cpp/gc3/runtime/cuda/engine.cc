#include "gc3/runtime/cuda/engine.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/devices.h"
#include "gc3/runtime/cuda/host_buffers.h"

namespace gc3::cuda {

Result<std::unique_ptr<Engine>> Engine::create(const std::shared_ptr<Runtime>& runtime, std::unique_ptr<Launcher> made,
                                               const std::vector<int>& devices) {
  std::unique_ptr<Engine> engine(new Engine);
  engine->launcher_ = std::move(made);
  Launcher& launcher = *engine->launcher_;
  const auto ranks = static_cast<std::uint32_t>(launcher.plan().ranks.size());
  if (devices.empty() || devices.size() > ranks) {
    return Diagnostic(ErrorCode::BadDevice,
                      std::to_string(devices.size()) + " devices for " + std::to_string(ranks) + " ranks");
  }
  std::vector<std::uint8_t*> arenas(ranks);
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if (std::count(devices.begin(), devices.end(), devices[d]) != 1) {
      return Diagnostic(ErrorCode::BadDevice, "device " + std::to_string(devices[d]) + " is named twice");
    }
    GC3_ASSIGN(const std::shared_ptr<Device> device, runtime->device(devices[d]));
    std::vector<std::uint32_t> own;
    for (auto r = static_cast<std::uint32_t>(d * ranks / devices.size()); r < (d + 1) * ranks / devices.size(); ++r) {
      own.push_back(r);
      engine->device_of_.push_back(devices[d]);
    }
    GC3_CHECK(launcher.add(device, own));
    for (const std::uint32_t r : own) arenas[r] = launcher.parts().back()->arena(r);
    GC3_ASSIGN(Stream stream, Stream::create(device));
    engine->streams_.push_back(std::move(stream));
  }
  for (const auto& part : launcher.parts()) {
    for (const auto& peer : launcher.parts()) {
      GC3_CHECK(part->device().reach(peer->device()));
      GC3_CHECK(part->device().check_lines(launcher.plan().protocol, peer->device().ordinal()));
    }
  }
  const bool copies =
      std::ranges::all_of(launcher.parts(), [](const auto& part) { return part->device().has_stream_values(); });
  GC3_CHECK(launcher.start(std::vector(devices.size(), arenas), devices.size() > 1, copies));
  return engine;
}

std::vector<int> Engine::devices() const {
  std::vector<int> ordinals;
  for (const auto& part : launcher_->parts()) ordinals.push_back(part->device().ordinal());
  return ordinals;
}

std::vector<CUstream> Engine::own_streams() const {
  std::vector<CUstream> streams;
  for (const Stream& s : streams_) streams.push_back(s.get());
  return streams;
}

Status Engine::enqueue(const interp::Call& call, const std::vector<CUstream>& streams) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(interp::check_call(plan(), call));
  if (streams.size() != streams_.size()) {
    return Diagnostic(ErrorCode::BadDevice,
                      std::to_string(streams.size()) + " streams for " + std::to_string(streams_.size()) + " devices");
  }
  return launcher_->enqueue(call, 0, streams);
}

Status Engine::synchronize(const Interrupted& interrupted) {
  const std::lock_guard lock(mutex_);
  return launcher_->wait(interrupted);
}

template <class Work>
Result<std::vector<double>> Engine::on_copies(const interp::Call& call, std::uint32_t warmup,
                                              const Interrupted& interrupted, const Work& work) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(interp::check_call(plan(), call));
  std::vector<std::shared_ptr<Device>> devices;
  for (const int ordinal : device_of_) {
    for (const auto& part : launcher_->parts()) {
      if (part->device().ordinal() == ordinal) devices.push_back(part->shared_device());
    }
  }
  GC3_ASSIGN(const HostBuffers buffers, HostBuffers::create(plan(), call, devices));
  GC3_CHECK(buffers.copy_in());
  for (std::uint32_t i = 0; i < warmup; ++i) GC3_CHECK(launcher_->enqueue(buffers.call(), 0, own_streams()));
  GC3_CHECK(launcher_->wait(interrupted));
  Result<std::vector<double>> seconds = work(buffers.call());
  GC3_CHECK(launcher_->wait(interrupted));  // launched work may still use the buffers
  if (seconds.ok()) GC3_CHECK(buffers.copy_out());
  return seconds;
}

Status Engine::run(const interp::Call& call, const Interrupted& interrupted) {
  GC3_CHECK(times(call, 0, 1, interrupted));
  return {};
}

Result<std::vector<double>> Engine::times(const interp::Call& call, std::uint32_t warmup, std::uint32_t iterations,
                                          const Interrupted& interrupted) {
  return on_copies(call, warmup, interrupted,
                   [&](const interp::Call& copied) { return launches(copied, iterations, interrupted); });
}

Result<std::vector<double>> Engine::time_graph(const interp::Call& call, std::uint32_t warmup, std::uint32_t iterations,
                                               const Interrupted& interrupted) {
  GC3_CHECK(check_runs(warmup, iterations));
  return on_copies(call, warmup, interrupted,
                   [&](const interp::Call& copied) { return replays(copied, iterations, interrupted); });
}

Result<std::vector<double>> Engine::launches(const interp::Call& call, std::uint32_t iterations,
                                             const Interrupted& interrupted) {
  std::vector<std::vector<Event>> events(streams_.size());
  const auto mark = [&]() -> Status {
    for (std::size_t p = 0; p < streams_.size(); ++p) {
      const std::shared_ptr<Device>& device = launcher_->parts()[p]->shared_device();
      GC3_ASSIGN(Event event, Event::create(device, true));
      const Current current(*device);
      GC3_CHECK(device->driver().check(device->driver()->record_event(event.get(), streams_[p].get()), "a time stamp"));
      events[p].push_back(std::move(event));
    }
    return {};
  };
  GC3_CHECK(mark());
  for (std::uint32_t i = 0; i < iterations; ++i) {
    GC3_CHECK(launcher_->enqueue(call, 0, own_streams()));
    GC3_CHECK(mark());
  }
  GC3_CHECK(launcher_->wait(interrupted));
  std::vector<double> seconds(iterations);
  for (std::size_t p = 0; p < streams_.size(); ++p) {
    GC3_CHECK(streams_[p].synchronize());
    const Driver& driver = launcher_->parts()[p]->device().driver();
    const Current current(launcher_->parts()[p]->device());
    for (std::uint32_t i = 0; i < iterations; ++i) {
      float ms = 0;
      GC3_CHECK(driver.check(driver->elapsed_ms(&ms, events[p][i].get(), events[p][i + 1].get()), "a time"));
      seconds[i] = std::max(seconds[i], static_cast<double>(ms) * 1e-3);
    }
  }
  return seconds;
}

Result<std::vector<double>> Engine::replays(const interp::Call& call, std::uint32_t iterations,
                                            const Interrupted& interrupted) {
  if (streams_.size() != 1) return Diagnostic(ErrorCode::BadOption, "a graph is timed on one device");
  const std::shared_ptr<Device>& device = launcher_->parts()[0]->shared_device();
  const Driver& driver = device->driver();
  const Current current(*device);
  const CUstream stream = streams_[0].get();
  GC3_CHECK(driver.check(driver->begin_capture(stream, kCaptureRelaxed), "a graph"));
  Status captured;
  for (std::uint32_t i = 0; i < iterations && captured.ok(); ++i) captured = launcher_->enqueue(call, 0, {stream});
  CUgraph graph = nullptr;
  const int ended = driver->end_capture(stream, &graph);
  if (!captured.ok()) return std::move(captured.error());
  GC3_CHECK(driver.check(ended, "a graph"));
  CUgraphExec executable = nullptr;
  const int made = driver->instantiate(&executable, graph, 0);
  driver->destroy_graph(graph);
  GC3_CHECK(driver.check(made, "a graph"));
  GC3_ASSIGN(const Event before, Event::create(device, true));
  GC3_ASSIGN(const Event after, Event::create(device, true));
  float ms = 0;
  int status = driver->launch_graph(executable, stream);  // once to warm up
  if (status == kCudaSuccess) status = driver->record_event(before.get(), stream);
  if (status == kCudaSuccess) status = driver->launch_graph(executable, stream);
  if (status == kCudaSuccess) status = driver->record_event(after.get(), stream);
  while (status == kCudaSuccess && driver->query_event(after.get()) == kCudaNotReady) {
    if (interrupted && interrupted()) launcher_->stop();
    std::this_thread::yield();
  }
  const int finished = driver->synchronize_stream(stream);
  if (status == kCudaSuccess) status = finished;
  if (status == kCudaSuccess) status = driver->elapsed_ms(&ms, before.get(), after.get());
  driver->destroy_graph_exec(executable);
  GC3_CHECK(driver.check(status, "a graph of " + std::to_string(iterations) + " launches"));
  return std::vector<double>(iterations, static_cast<double>(ms) * 1e-3 / iterations);
}

}  // namespace gc3::cuda
