#include "gc3/runtime/cpu/threads_engine.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/runtime/core/sharing/cores.h"
#include "gc3/runtime/core/waiting/wait_policy.h"
#include "gc3/runtime/interp/checked_bytes.h"
#include "gc3/runtime/interp/waiting_report.h"

namespace gc3::cpu {
namespace {

constexpr std::uint64_t kDefaultFifoBytes = std::uint64_t{1} << 30U;  // of all connections together
constexpr double kTickSeconds = 0.05;

std::string in_words(double seconds) {
  std::ostringstream text;
  text << seconds;
  return text.str();
}

Diagnostic forked() {
  return {ErrorCode::BadOption, "the engine was made before this process was forked; make one in this process"};
}

}  // namespace

ThreadsEngine::ThreadsEngine(interp::Plan plan, const EngineOptions& options)
    : plan_(std::move(plan)),
      timeout_s_(options.timeout_s),
      seed_(options.seed),
      semaphores_(plan_.threadblocks.size()),
      heads_(plan_.connections.size()),
      memory_(plan_, 0, static_cast<std::uint32_t>(plan_.ranks.size())) {
  for (std::uint32_t i = 0; i < plan_.threadblocks.size(); ++i) {
    const std::uint32_t rank = plan_.threadblocks[i].rank;
    tasks_.push_back(plan_.task(i, memory_.regions(rank), &semaphores_[plan_.ranks[rank].first_tb]));
  }
}

Result<std::unique_ptr<ThreadsEngine>> ThreadsEngine::create(const ir::Program& program, const EngineOptions& options) {
  if (!(options.timeout_s > 0) || !std::isfinite(options.timeout_s)) {
    return Diagnostic(ErrorCode::BadOption,
                      "timeout of " + in_words(options.timeout_s) + " s; expected a positive number of seconds");
  }
  GC3_ASSIGN(interp::Plan plan, interp::Plan::create_computing(program));
  std::unique_ptr<ThreadsEngine> engine(new ThreadsEngine(std::move(plan), options));
  GC3_ASSIGN(engine->geometry_,
             FifoGeometry::choose(engine->plan_, options.slots, options.slot_bytes, kDefaultFifoBytes));
  if (program.has_tensors()) {
    for (std::uint32_t r = 0; r < engine->plan_.ranks.size(); ++r) {
      GC3_ASSIGN(interp::VLayout layout, interp::VLayout::create(program, engine->plan_, r));
      engine->v_memory_.emplace_back(std::move(layout), engine->plan_, r);
    }
    engine->v_runs_.resize(engine->plan_.ranks.size());
  }
  GC3_CHECK(engine->start_workers(options));
  return engine;
}

Status ThreadsEngine::start_workers(const EngineOptions& options) {
  const auto ranks = static_cast<std::uint32_t>(plan_.ranks.size());
  std::uint32_t workers = options.workers != 0 ? options.workers : std::max(1U, core::Cores::own().count());
  // All threadblocks of a rank have the same worker, so only this worker uses its buffers and finishes its run.
  workers = seed_.has_value() ? 1 : std::min(workers, ranks);
  for (std::uint32_t w = 0; w < workers; ++w) {
    const auto first_task = [&](std::uint64_t worker) {
      const auto rank = static_cast<std::size_t>(worker * ranks / workers);
      return rank == ranks ? tasks_.size() : plan_.ranks[rank].first_tb;
    };
    const std::size_t first = first_task(w);
    const std::span<interp::Task> own = std::span(tasks_).subspan(first, first_task(w + 1) - first);
    runners_.push_back(std::make_unique<Runner>(own, plan_.protocol, workers, control_));
  }
  barrier_ = std::make_unique<StartBarrier>(workers);
  GC3_ASSIGN(pool_, WorkerPool::create(workers, options.pin));
  return {};
}

Status ThreadsEngine::open_fifos() {
  const std::string purpose = "the FIFOs of " + std::to_string(plan_.connections.size()) + " connections";
  const std::size_t connection_bytes = geometry_.connection_bytes();
  GC3_ASSIGN(const std::size_t bytes, interp::checked_bytes(connection_bytes, plan_.connections.size(), purpose));
  fifos_ = Arena();
  GC3_ASSIGN(fifos_, Arena::create(bytes, purpose));
  for (std::size_t c = 0; c < plan_.connections.size(); ++c) {
    heads_[c].value = 0;
    std::uint8_t* slots = fifos_.data() + c * connection_bytes;
    auto* arrivals = reinterpret_cast<std::uint64_t*>(slots + geometry_.slots_bytes());
    tasks_[plan_.connections[c].sender_tb].send = {arrivals, &heads_[c], slots, 0, 0, 0};
    tasks_[plan_.connections[c].receiver_tb].recv = {arrivals, &heads_[c], slots, 0, 0};
  }
  fifos_open_ = true;
  return {};
}

Status ThreadsEngine::run(const Call& call, const Interrupted& interrupted) {
  GC3_CHECK(execute(call, 1, interrupted));
  return {};
}

Result<std::vector<double>> ThreadsEngine::times(const Call& call, std::uint32_t warmup, std::uint32_t iterations,
                                                 const Interrupted& interrupted) {
  GC3_ASSIGN(const std::vector<Times> runs, execute(call, warmup + iterations, interrupted));
  std::vector<double> seconds;
  for (const Times& run : std::span(runs).subspan(warmup)) {
    seconds.push_back(static_cast<double>(run.stop - run.start) * 1e-9);
  }
  return seconds;
}

Result<Recording> ThreadsEngine::record(const Call& call, std::size_t most, const Interrupted& interrupted) {
  std::vector<Recorder> recorders;
  for (std::uint32_t w = 0; w < runners_.size(); ++w) {
    recorders.emplace_back(runners_[w]->tasks(), w, std::max<std::size_t>(most / runners_.size(), 1));
  }
  GC3_ASSIGN(const std::vector<Times> runs, execute(call, 1, interrupted, recorders));
  Recording found{runs.front().start, runs.front().stop, {}, 0};
  for (const Recorder& r : recorders) {
    found.steps.insert(found.steps.end(), r.steps().begin(), r.steps().end());
    found.dropped += r.dropped();
  }
  return found;
}

void ThreadsEngine::abort() { abort_asked_.store(true, std::memory_order_relaxed); }

void ThreadsEngine::stop(Why why) {
  Why none = Why::nothing;
  why_.compare_exchange_strong(none, why, std::memory_order_relaxed);  // the first reason is the one reported
  control_.stop.store(true, std::memory_order_relaxed);
  control_.doorbell.wake();
}

std::uint64_t ThreadsEngine::progress() const {
  std::uint64_t sum = 0;
  for (const auto& r : runners_) sum += r->progress();
  return sum;
}

Result<std::vector<ThreadsEngine::Times>> ThreadsEngine::execute(const Call& call, std::uint32_t iterations,
                                                                 const Interrupted& interrupted,
                                                                 std::span<Recorder> recorders) {
  if (!usable()) return forked();
  const std::lock_guard lock(mutex_);
  if (plan_.collective.has_tensors()) {
    return Diagnostic(ErrorCode::NotWithCompute, "a run of chunks of one length, without functions to compute");
  }
  GC3_CHECK(check_call(plan_, call));
  GC3_ASSIGN(interp::Run run, make_run(plan_, geometry_, call.count, model::size_of(call.type)));
  GC3_CHECK(memory_.bind(call, run));
  if (call.op == model::ReduceOp::avg && !average_) average_.emplace(plan_);
  const KernelSet& kernels = best_kernels();
  const auto type = static_cast<std::size_t>(call.type);
  const auto begin = [&](std::uint32_t rank) { memory_.copy_in(rank); };
  const auto finish = [&](std::uint32_t rank) {
    memory_.copy_out(rank);
    if (call.op == model::ReduceOp::avg) average_->apply(rank, call, kernels.divide[type]);
  };
  const Kernel& kernel = kernels.reduce[type][static_cast<std::size_t>(call.op)];
  return execute_bound(run, iterations, interrupted, kernel, begin, finish, recorders);
}

// One tile, since an operation takes whole chunks: so slots as long as the longest message may be.
Status ThreadsEngine::bind_computing(std::span<const VRankCall> ranks, interp::Run& run) {
  const VRankCall& first = ranks.front();
  const std::uint64_t longest = *std::ranges::max_element(first.counts);
  const std::size_t elem = model::size_of(first.type);
  GC3_ASSIGN(run, make_run(plan_, geometry_, longest, elem));
  if (run.tiles > 1) {
    GC3_ASSIGN(const std::size_t bytes, interp::checked_bytes(longest * elem, plan_.max_count, "a FIFO slot"));
    GC3_ASSIGN(geometry_, FifoGeometry::choose(plan_, geometry_.slots, bytes + interp::kCacheLine, kDefaultFifoBytes));
    fifos_open_ = false;
    GC3_ASSIGN(run, make_run(plan_, geometry_, longest, elem));
  }
  run.tiles = 1;  // also of chunks that are all empty
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    static_cast<interp::Run&>(v_runs_[r]) = run;
    v_runs_[r].first_step = plan_.ranks[r].tb_count == 0 ? nullptr : tasks_[plan_.ranks[r].first_tb].steps;
    GC3_CHECK(v_memory_[r].bind(ranks[r], memory_, v_runs_[r]));
  }
  return {};
}

Status ThreadsEngine::compute(std::span<const VRankCall> ranks, Computing::Function function,
                              const Interrupted& interrupted) {
  if (!usable()) return forked();
  const std::lock_guard lock(mutex_);
  if (ranks.size() != v_memory_.size()) {
    return Diagnostic(ErrorCode::BadArgument, "not a program of named tensors, or not a call of each rank");
  }
  const VRankCall& call = ranks.front();
  GC3_CHECK(check_computing(plan_.collective, call.type, call.op));
  interp::Run run;
  GC3_CHECK(bind_computing(ranks, run));
  computing_.begin(std::move(function), [this] { stop(Why::compute); });
  for (interp::VRun& v : v_runs_) v.first_tile = tiles_run_;
  for (const auto& runner : runners_) runner->compute(v_runs_, &computing_);
  const auto begin = [&](std::uint32_t rank) { v_memory_[rank].copy_in(); };
  const auto finish = [&](std::uint32_t rank) { v_memory_[rank].copy_out(); };
  const Kernel& kernel = best_kernels().reduce[static_cast<std::size_t>(call.type)][static_cast<std::size_t>(call.op)];
  const Result<std::vector<Times>> times = execute_bound(run, 1, interrupted, kernel, begin, finish, {});
  computing_.end();
  return times.ok() ? Status() : Status(times.error());
}

Result<std::vector<ThreadsEngine::Times>> ThreadsEngine::execute_bound(interp::Run run, std::uint32_t iterations,
                                                                       const Interrupted& interrupted,
                                                                       const Kernel& kernel, const RankWork& begin,
                                                                       const RankWork& finish,
                                                                       std::span<Recorder> recorders) {
  if (!fifos_open_) GC3_CHECK(open_fifos());
  run.first_tile = tiles_run_;
  tiles_run_ += run.tiles * iterations;

  abort_asked_.store(false, std::memory_order_relaxed);
  control_.stop.store(false, std::memory_order_relaxed);
  why_.store(Why::nothing, std::memory_order_relaxed);
  barrier_->reset();
  std::vector<Times> times(std::size_t{iterations} * runners_.size());
  std::uint64_t seen = progress();
  core::WaitClock still;
  const auto watch = [&] {
    if (pool_->has_failed()) return stop(Why::failed);
    if (abort_asked_.load(std::memory_order_relaxed) || (interrupted && interrupted())) return stop(Why::interrupted);
    if (const std::uint64_t p = progress(); p != seen || computing_.runs()) {
      seen = p;
      still = core::WaitClock();
    } else if (still.waited_s() > timeout_s_) {
      stop(Why::timeout);
    }
  };
  const auto body = [&](std::uint32_t worker) {
    work(worker, run, kernel, begin, finish, times, recorders.empty() ? nullptr : &recorders[worker]);
  };
  Status status = pool_->run(body, std::min(kTickSeconds, timeout_s_ / 4), watch);
  if (!status.ok() || why_.load(std::memory_order_relaxed) != Why::nothing) {
    fifos_open_ = false;  // messages of the given-up run may still be in them
    return status.ok() ? explain(run) : std::move(status.error());
  }
  std::vector<Times> runs(iterations);
  for (std::size_t i = 0; i < iterations; ++i) {
    runs[i] = times[i * runners_.size()];
    for (std::size_t w = 1; w < runners_.size(); ++w) {
      runs[i].start = std::min(runs[i].start, times[i * runners_.size() + w].start);
      runs[i].stop = std::max(runs[i].stop, times[i * runners_.size() + w].stop);
    }
  }
  return runs;
}

void ThreadsEngine::work(std::uint32_t worker, const interp::Run& first_run, const Kernel& kernel,
                         const RankWork& begin, const RankWork& finish, std::vector<Times>& times, Recorder* recorder) {
  Runner& runner = *runners_[worker];
  runner.record(recorder);
  interp::Run run = first_run;
  const auto ranks = static_cast<std::uint32_t>(plan_.ranks.size());
  for (std::size_t i = worker; i < times.size(); i += runners_.size(), run.first_tile += run.tiles) {
    runner.reset();
    barrier_->arrive_and_wait(control_.stop);
    times[i].start = steady_now();
    if (recorder != nullptr) recorder->begin(times[i].start);
    for (std::uint64_t r = worker * std::uint64_t{ranks} / runners_.size();
         r < (worker + 1) * std::uint64_t{ranks} / runners_.size(); ++r) {
      begin(static_cast<std::uint32_t>(r));
    }
    const Ended ended =
        seed_.has_value() ? runner.replay(run, kernel, finish, *seed_) : runner.poll(run, kernel, finish);
    times[i].stop = steady_now();
    if (ended == Ended::deadlocked) stop(Why::deadlock);
    if (ended != Ended::finished) return;
  }
}

Diagnostic ThreadsEngine::explain(const interp::Run& run) const {
  switch (why_.load(std::memory_order_relaxed)) {
    case Why::interrupted:
      return Diagnostic(ErrorCode::Aborted, "interrupted by the caller");
    case Why::timeout: {
      Diagnostic d(ErrorCode::Timeout, "the run has made no progress for " + in_words(timeout_s_) + " s");
      report_waiting(plan_, tasks_, run, d);
      return d;
    }
    case Why::deadlock: {
      Diagnostic d(ErrorCode::RuntimeDeadlock, "");
      report_waiting(plan_, tasks_, run, d);
      return d;
    }
    case Why::compute:
      return *computing_.problem();
    case Why::failed:
    case Why::nothing:
      break;
  }
  return Diagnostic(ErrorCode::Internal, "a run ended early without a reason");
}

}  // namespace gc3::cpu
