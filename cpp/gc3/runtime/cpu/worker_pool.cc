#include "gc3/runtime/cpu/worker_pool.h"

#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/guarded.h"
#include "gc3/base/threads.h"
#include "gc3/runtime/core/sharing/cores.h"
#include "gc3/runtime/cpu/idle.h"

namespace gc3::cpu {

Result<std::unique_ptr<WorkerPool>> WorkerPool::create(std::uint32_t workers, bool pin) {
  const core::Cores cores = core::Cores::own();
  std::unique_ptr<WorkerPool> pool(new WorkerPool());
  pool->process_ = ::getpid();
  for (std::uint32_t w = 0; w < workers; ++w) {
    const auto work = [p = pool.get(), w, pin, share = cores.share_of({w, workers}), spins = spins_for(w + 1)] {
      if (pin) share.keep_here();
      p->work(w, spins);
    };
    GC3_ASSIGN(std::thread started,
               start_thread("worker thread " + std::to_string(w) + " of " + std::to_string(workers), work));
    pool->threads_.push_back(std::move(started));
  }
  return pool;
}

bool WorkerPool::alive() const { return process_ == ::getpid(); }

WorkerPool::~WorkerPool() {
  if (!alive()) {
    for (std::thread& t : threads_) t.detach();  // they exist only in the parent, so joining would never end
    return;
  }
  quit_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& t : threads_) t.join();
}

bool WorkerPool::has_failed() {
  const std::lock_guard lock(mutex_);
  return !problem_.ok();
}

Status WorkerPool::run(const std::function<void(std::uint32_t)>& job, double period_s,
                       const std::function<void()>& tick) {
  {
    const std::lock_guard lock(mutex_);
    running_ = static_cast<std::uint32_t>(threads_.size());
    problem_ = {};
  }
  job_ = &job;
  generation_.fetch_add(1, std::memory_order_release);  // after the job and all data that it reads
  generation_.notify_all();
  std::unique_lock lock(mutex_);
  while (!finished_.wait_for(lock, std::chrono::duration<double>(period_s), [this] { return running_ == 0; })) {
    lock.unlock();
    tick();
    lock.lock();
  }
  return problem_;
}

void WorkerPool::work(std::uint32_t worker, std::uint32_t spins) {
  Backoff backoff(spins);
  for (std::uint32_t seen = 0;;) {
    std::uint32_t now = generation_.load(std::memory_order_acquire);
    while (now == seen) {
      if (backoff.rest()) generation_.wait(seen, std::memory_order_acquire);
      now = generation_.load(std::memory_order_acquire);
    }
    seen = now;
    backoff.renew();
    if (quit_.load(std::memory_order_relaxed)) return;
    Status status = guarded([&] {
      (*job_)(worker);
      return Status();
    });
    const std::lock_guard lock(mutex_);
    if (!status.ok() && problem_.ok()) problem_ = std::move(status);
    if (--running_ == 0) finished_.notify_one();
  }
}

}  // namespace gc3::cpu
