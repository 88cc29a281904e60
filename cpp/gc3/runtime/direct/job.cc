#include "gc3/runtime/direct/job.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/runtime/core/sharing/cores.h"
#include "gc3/runtime/core/waiting/wait_policy.h"
#include "gc3/runtime/cpu/recording.h"
#include "gc3/runtime/direct/chunk_classes.h"
#include "gc3/runtime/interp/checked_bytes.h"

namespace gc3::direct {
namespace {

std::string seconds_in_words(double seconds) {
  std::ostringstream text;
  text << seconds << " s";
  return text.str();
}

}  // namespace

Job::Job(Decoded decoded, const JobOptions& options)
    : decoded_(std::move(decoded)),
      timeout_s_(options.timeout_s),
      plan_(plan_of(decoded_)),
      memory_(plan_, 0, static_cast<std::uint32_t>(plan_.ranks.size())) {}

Result<std::unique_ptr<Job>> Job::create(const Program& program, const JobOptions& options) {
  if (!(options.timeout_s > 0) || !std::isfinite(options.timeout_s)) {
    return Diagnostic(ErrorCode::BadOption,
                      "timeout of " + seconds_in_words(options.timeout_s) + "; expected a positive number of seconds");
  }
  GC3_ASSIGN(Decoded decoded, Decoded::create(program));
  std::unique_ptr<Job> job(new Job(std::move(decoded), options));
  GC3_ASSIGN(job->plan_.moves_between_classes, moves_between_classes(job->decoded_));
  GC3_CHECK(job->start(options));
  return job;
}

Status Job::start(const JobOptions& options) {
  GC3_ASSIGN(counters_, cpu::Arena::create(Counters::bytes(program()), "the counters of a direct program"));
  const Counters counters(counters_.data(), program());
  const std::uint32_t ranks = program().collective.ranks();
  const std::uint32_t cores = std::max(1U, core::Cores::own().count());
  const std::uint64_t workers = std::min(options.workers != 0 ? options.workers : cores, ranks);
  spins_ = cpu::spins_for(static_cast<std::uint32_t>(workers));
  for (std::uint64_t w = 0; w < workers; ++w) {
    workers_.push_back(
        std::unique_ptr<Worker>(new Worker{Machine(decoded_, counters, static_cast<std::uint32_t>(w * ranks / workers),
                                                   static_cast<std::uint32_t>((w + 1) * ranks / workers))}));
  }
  barrier_ = std::make_unique<cpu::StartBarrier>(static_cast<std::uint32_t>(workers));
  GC3_ASSIGN(pool_, cpu::WorkerPool::create(static_cast<std::uint32_t>(workers), options.pin));
  return {};
}

Status Job::bind(const interp::Call& call, Shape& shape) {
  const auto type = static_cast<std::size_t>(call.type);
  const std::uint32_t chunks = program().collective.chunks();
  shape.count = call.count;
  shape.elem_bytes = model::size_of(call.type);
  shape.kernel = cpu::best_kernels().reduce[type][static_cast<std::size_t>(call.op)];
  shape.regular = plan_.regular(call.count);
  interp::Run run;
  run.chunk_elems = (call.count + chunks - 1) / chunks;
  run.regular = shape.regular ? 1 : 0;
  GC3_CHECK(memory_.bind(call, run));
  if (call.op == model::ReduceOp::avg && !average_) average_.emplace(plan_);
  stride_ = std::max(stride_, Shape::least_stride(call.count, chunks, shape.elem_bytes));
  shape.stride = stride_;
  buffers_.resize(plan_.ranks.size());
  for (std::uint32_t r = 0; r < buffers_.size(); ++r) {
    const std::uint64_t copies = std::uint64_t{decoded_.scratch_chunks[r]} * program().halves;
    GC3_ASSIGN(const std::size_t bytes, interp::checked_bytes(stride_, copies, "the scratch of a rank"));
    GC3_ASSIGN(std::uint8_t* const scratch, memory_.scratch(r, bytes));  // zeros where it has grown
    if (spoiled_ && bytes != 0) std::memset(scratch, 0, bytes);
    const interp::Region* regions = memory_.regions(r);
    buffers_[r] = {regions[0].base, regions[1].base, scratch};
    shape.streams |= (regions[0].streams | regions[1].streams) != 0;
  }
  return {};
}

void Job::stop(Why why) {
  Why none = Why::nothing;
  why_.compare_exchange_strong(none, why, std::memory_order_relaxed);  // the first reason is the one reported
  stop_.store(true, std::memory_order_relaxed);
  doorbell_.wake();
}

Status Job::run(const interp::Call& call, const interp::Interrupted& interrupted) {
  return run_calls(call, 1, {}, interrupted);
}

Status Job::run_calls(const interp::Call& call, std::uint32_t calls, const Machine::Note& ended,
                      const interp::Interrupted& interrupted) {
  GC3_CHECK(execute(call, 1, calls, interrupted, ended));
  return {};
}

Result<std::vector<double>> Job::times(const interp::Call& call, std::uint32_t warmup, std::uint32_t iterations,
                                       const interp::Interrupted& interrupted) {
  GC3_ASSIGN(const std::vector<Times> rounds, execute(call, warmup + iterations, 1, interrupted, {}));
  std::vector<double> seconds;
  for (const Times& t : std::span(rounds).subspan(warmup)) {
    seconds.push_back(static_cast<double>(t.stop - t.start) * 1e-9);
  }
  return seconds;
}

Result<std::vector<Job::Times>> Job::execute(const interp::Call& call, std::uint32_t rounds, std::uint32_t calls,
                                             const interp::Interrupted& interrupted, const Machine::Note& ended) {
  if (!usable()) {
    return Diagnostic(ErrorCode::BadOption,
                      "the engine was made before this process was forked; make one in this process");
  }
  const std::lock_guard lock(mutex_);
  GC3_CHECK(check_call(plan_, call));
  Shape shape;
  GC3_CHECK(bind(call, shape));
  if (std::exchange(spoiled_, true)) std::memset(counters_.data(), 0, counters_.size());
  abort_asked_.store(false, std::memory_order_relaxed);
  stop_.store(false, std::memory_order_relaxed);
  why_.store(Why::nothing, std::memory_order_relaxed);
  barrier_->reset();
  std::vector<std::vector<Times>> by_worker(workers_.size(), std::vector<Times>(rounds));
  core::WaitClock still;
  std::uint64_t seen = 0;
  const auto watch = [&] {
    if (pool_->has_failed()) return stop(Why::failed);
    if (abort_asked_.load(std::memory_order_relaxed) || (interrupted && interrupted())) return stop(Why::interrupted);
    std::uint64_t sum = 0;
    for (const auto& w : workers_) sum += w->progress.load(std::memory_order_relaxed);
    if (sum != std::exchange(seen, sum)) {
      still = core::WaitClock();
    } else if (still.waited_s() > timeout_s_) {
      stop(Why::timeout);
    }
  };
  const Machine::Note begins = [&](std::uint32_t rank, std::uint32_t) { memory_.copy_in(rank); };
  const Machine::Note ends = [&](std::uint32_t rank, std::uint32_t number) {
    memory_.copy_out(rank);
    if (call.op == model::ReduceOp::avg) {
      average_->apply(rank, call, cpu::best_kernels().divide[static_cast<std::size_t>(call.type)]);
    }
    if (ended) ended(rank, number);
  };
  const auto body = [&](std::uint32_t w) {
    DataMover mover(decoded_, shape, buffers_);
    for (Times& t : by_worker[w]) {
      barrier_->arrive_and_wait(stop_);
      t.start = cpu::steady_now();
      const bool done = work(*workers_[w], mover, calls, begins, ends);
      t.stop = cpu::steady_now();
      if (!done) return;
    }
  };
  GC3_CHECK(pool_->run(body, std::min(0.05, timeout_s_ / 4), watch));
  if (why_.load(std::memory_order_relaxed) != Why::nothing) return explain();
  spoiled_ = false;
  for (std::size_t k = 0; k < rounds; ++k) {
    for (const std::vector<Times>& other : by_worker) {
      by_worker[0][k].start = std::min(by_worker[0][k].start, other[k].start);
      by_worker[0][k].stop = std::max(by_worker[0][k].stop, other[k].stop);
    }
  }
  return std::move(by_worker[0]);
}

bool Job::work(Worker& worker, DataMover& mover, std::uint32_t calls, const Machine::Note& begins,
               const Machine::Note& ended) {
  const bool alone = workers_.size() == 1;
  const std::function<void()> progress = [&] {
    worker.progress.store(worker.progress.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (!alone) doorbell_.ring();
  };
  worker.machine.begin(calls, mover, begins, ended);
  cpu::Backoff backoff(spins_);
  while (!worker.machine.finished()) {
    if (stop_.load(std::memory_order_relaxed)) return false;
    if (worker.machine.sweep(progress)) {
      backoff.renew();
      continue;
    }
    if (alone) {  // no other worker can change anything
      stop(Why::deadlock);
      return false;
    }
    if (!backoff.rest()) continue;
    const std::uint32_t ticket = doorbell_.prepare();
    if (stop_.load(std::memory_order_relaxed) || worker.machine.sweep(progress)) {
      doorbell_.cancel();
    } else {
      doorbell_.sleep(ticket);
    }
  }
  return true;
}

Diagnostic Job::explain() const {
  const Why why = why_.load(std::memory_order_relaxed);
  if (why == Why::interrupted) return Diagnostic(ErrorCode::Aborted, "interrupted by the caller");
  Diagnostic problem =
      why == Why::deadlock
          ? Diagnostic(ErrorCode::RuntimeDeadlock, "")
          : Diagnostic(ErrorCode::Timeout, "the run has made no progress for " + seconds_in_words(timeout_s_));
  for (const auto& worker : workers_) worker->machine.report(problem);
  return problem;
}

}  // namespace gc3::direct
