// Threads that exist as long as their engine. All of them run one job at a time.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gc3/base/result.h"

namespace gc3::cpu {

class WorkerPool {
 public:
  // `pin`: each thread is restricted to its share of the cores that this thread may use.
  static Result<std::unique_ptr<WorkerPool>> create(std::uint32_t workers, bool pin);
  ~WorkerPool();

  // Whether the threads exist; a forked process does not have them.
  bool alive() const;

  // Runs job(worker) on all workers and returns when all have finished. Meanwhile calls `tick` on this thread, about
  // every `period_s` seconds. Only one call at a time is allowed. Fails if a job has thrown.
  Status run(const std::function<void(std::uint32_t)>& job, double period_s, const std::function<void()>& tick);
  // Whether a job of the running call has, so that the others may wait for it in vain.
  bool has_failed();

 private:
  WorkerPool() = default;
  void work(std::uint32_t worker, std::uint32_t spins);

  const std::function<void(std::uint32_t)>* job_ = nullptr;  // published by generation_
  alignas(128) std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> quit_{false};
  std::mutex mutex_;
  std::condition_variable finished_;
  std::uint32_t running_ = 0;  // guarded by mutex_, as is
  Status problem_;             // of the first job that has thrown
  std::vector<std::thread> threads_;
  pid_t process_ = 0;  // to which the threads belong
};

}  // namespace gc3::cpu
