#include "gc3/runtime/cpu/memory_bound.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gc3/base/copy_bytes.h"
#include "gc3/base/errors/common.h"
#include "gc3/base/threads.h"
#include "gc3/runtime/cpu/kernels.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gc3::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Sums into a piece that stays in the innermost cache, and writes from there.
constexpr std::size_t kPiece = 8192;

std::size_t buffer_bytes(const Traffic& traffic) { return (traffic.bytes + 4095) / 4096 * 4096; }
std::size_t memory_bytes(const Traffic& traffic) {
  return std::max<std::size_t>(buffer_bytes(traffic) * (traffic.sources + traffic.targets), 1);
}

void store(float* to, const float* from, std::size_t bytes, bool streaming) {
#if defined(__SSE2__)
  if (streaming && bytes % 64 == 0) {
    for (std::size_t i = 0; i < bytes / sizeof(float); i += 16) {
      for (std::size_t k = 0; k < 16; k += 4) _mm_stream_ps(to + i + k, _mm_loadu_ps(from + i + k));
    }
    return;
  }
#else
  static_cast<void>(streaming);
#endif
  copy_bytes(to, from, bytes);
}

void stay_on(const cpu_set_t& allowed, std::uint32_t which) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || which-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);  // if that is refused, the thread runs on any core
    return;
  }
}

}  // namespace

Result<MemoryBound> MemoryBound::create(const Traffic& traffic, std::uint32_t threads) {
  void* const memory = mmap(nullptr, memory_bytes(traffic), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Diagnostic(ErrorCode::OutOfMemory, std::to_string(memory_bytes(traffic)) + " bytes to measure memory with");
  }
  auto* const values = static_cast<float*>(memory);
  std::fill(values, values + memory_bytes(traffic) / sizeof(float), 1.0F);
  return MemoryBound(traffic, std::max(1U, threads), values);
}

MemoryBound::MemoryBound(const Traffic& traffic, std::uint32_t threads, float* memory)
    : traffic_(traffic), threads_(threads), memory_(memory) {}

MemoryBound::MemoryBound(MemoryBound&& other) noexcept
    : traffic_(other.traffic_), threads_(other.threads_), memory_(std::exchange(other.memory_, nullptr)) {}

MemoryBound::~MemoryBound() {
  if (memory_ != nullptr) munmap(memory_, memory_bytes(traffic_));
}

Result<double> MemoryBound::seconds(std::uint32_t repetitions) const {
  // Each repetition is run with ordinary and with streaming stores; an extra one before them brings the caches into the
  // state of a run.
  const std::uint32_t runs = 2 * repetitions + 1;
  std::atomic<std::uint32_t> arrived{0};
  std::atomic<bool> incomplete{false};  // not all threads could be started
  std::vector<std::vector<Clock::time_point>> times(threads_, std::vector<Clock::time_point>(2 * std::size_t{runs}));
  cpu_set_t allowed;
  const bool can_pin = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const auto work = [&](std::uint32_t self) {
    // The same thread on the same core every time: its share stays in that core's caches, as a rank's buffers do.
    if (can_pin) stay_on(allowed, self);
    for (std::uint32_t run = 0; run < runs; ++run) {
      arrived.fetch_add(1, std::memory_order_acq_rel);
      while (arrived.load(std::memory_order_acquire) < threads_ * (run + 1)) {
        if (incomplete.load(std::memory_order_relaxed)) return;  // relaxed: nothing is read after it
        std::this_thread::yield();
      }
      times[self][2 * std::size_t{run}] = Clock::now();
      share(self, run > repetitions);
      times[self][2 * std::size_t{run} + 1] = Clock::now();
    }
  };
  std::vector<std::thread> threads;
  Status all;
  for (std::uint32_t t = 0; t < threads_ && all.ok(); ++t) {
    auto started = start_thread("a thread for the bound of the memory", [&work, t] { work(t); });
    if (started.ok()) {
      threads.push_back(std::move(started).value());
    } else {
      all = started.error();
      incomplete.store(true, std::memory_order_relaxed);
    }
  }
  for (std::thread& thread : threads) thread.join();
  GC3_CHECK(all);
  Clock::duration best = Clock::duration::max();
  for (std::size_t run = 1; run < runs; ++run) {
    Clock::time_point start = Clock::time_point::max();
    Clock::time_point end = Clock::time_point::min();
    for (const auto& of_thread : times) {
      start = std::min(start, of_thread[2 * run]);
      end = std::max(end, of_thread[2 * run + 1]);
    }
    best = std::min(best, end - start);
  }
  return std::chrono::duration<double>(best).count();
}

void MemoryBound::share(std::uint32_t thread, bool streaming) const {
  const auto& add =
      best_kernels()
          .reduce[static_cast<std::size_t>(model::DataType::float32)][static_cast<std::size_t>(model::ReduceOp::sum)]
          .reduce;
  alignas(64) float sum[kPiece / sizeof(float)];
  const std::size_t apart = buffer_bytes(traffic_) / sizeof(float);
  const std::size_t length = (traffic_.bytes / threads_ + 63) / 64 * 64;  // shares end at cache lines
  const std::size_t end = std::min(traffic_.bytes, length * (thread + 1));
  for (std::size_t at = std::min(traffic_.bytes, length * thread); at < end; at += kPiece) {
    const std::size_t bytes = std::min(kPiece, end - at);
    float* const here = memory_ + at / sizeof(float);
    const float* from = here;
    for (std::uint32_t s = 1; s < traffic_.sources; ++s) {
      add(sum, from, here + s * apart, bytes);
      from = sum;
    }
    for (std::uint32_t t = 0; t < traffic_.targets; ++t) {
      store(here + (traffic_.sources + t) * apart, from, bytes, streaming);
    }
  }
#if defined(__SSE2__)
  if (streaming) _mm_sfence();
#endif
}

}  // namespace gc3::cpu
