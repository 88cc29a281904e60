#include "gc3/runtime/cpu/threads_engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>
#include <utility>

#include "gc3/runtime/cpu/waiting_report.h"

namespace gc3::cpu {
namespace {

constexpr std::uint32_t kDefaultSlots = 8;
constexpr std::uint64_t kDefaultFifoBytes = std::uint64_t{1} << 30U;  // of all connections together
constexpr double kTickSeconds = 0.05;

struct LineFormat {
  std::uint64_t bytes;         // of a line
  std::uint64_t data;          // of them, data
  std::uint64_t default_slot;  // bytes
};

LineFormat format_of(model::Protocol protocol) {
  switch (protocol) {
    case model::Protocol::Simple:
      return {interp::Simple::kLineBytes, interp::Simple::kLineData, 128 * 1024};
    case model::Protocol::LL:
      return {interp::LL::kLineBytes, interp::LL::kLineData, 64 * 1024};
    case model::Protocol::LL128:
      return {interp::LL128::kLineBytes, interp::LL128::kLineData, 128 * 1024};
  }
  return {};
}

std::string in_words(double seconds) {
  std::ostringstream text;
  text << seconds;
  return text.str();
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

ThreadsEngine::ThreadsEngine(interp::Plan plan, const EngineOptions& options)
    : plan_(std::move(plan)), timeout_s_(options.timeout_s), seed_(options.seed), memory_(plan_) {}

Result<std::unique_ptr<ThreadsEngine>> ThreadsEngine::create(const ir::Program& program, const EngineOptions& options) {
  if (!(options.timeout_s > 0) || !std::isfinite(options.timeout_s)) {
    return Diagnostic(ErrorCode::BadOption, "a timeout is a positive number of seconds");
  }
  GC3_ASSIGN(interp::Plan plan, interp::Plan::create(program));
  std::unique_ptr<ThreadsEngine> engine(new ThreadsEngine(std::move(plan), options));
  GC3_CHECK(engine->choose_sizes(options));
  engine->make_tasks();
  GC3_CHECK(engine->start_workers(options));
  return engine;
}

Status ThreadsEngine::choose_sizes(const EngineOptions& options) {
  slots_ = options.slots != 0 ? options.slots : std::max(plan_.slots, kDefaultSlots);
  if (slots_ < plan_.slots) {
    return Diagnostic(ErrorCode::BadOption, "the program needs " + std::to_string(plan_.slots) +
                                                " slots per connection and would deadlock with " +
                                                std::to_string(slots_));
  }
  const LineFormat format = format_of(plan_.protocol);
  slot_bytes_ = options.slot_bytes;
  if (slot_bytes_ == 0) {
    // One element of the widest type per chunk must fit; beyond that, many connections share a bounded total.
    const std::uint64_t least_data = std::uint64_t{plan_.max_count} * 8;
    const std::uint64_t least = (least_data + format.data - 1) / format.data * format.bytes;
    const std::uint64_t all_slots = std::max<std::uint64_t>(plan_.connections.size(), 1) * slots_;
    slot_bytes_ = std::max({least, std::min(format.default_slot, kDefaultFifoBytes / all_slots), std::uint64_t{4096}});
    slot_bytes_ += (interp::kCacheLine - slot_bytes_ % interp::kCacheLine) % interp::kCacheLine;
  }
  slot_bytes_ -= slot_bytes_ % format.bytes;
  if (slot_bytes_ == 0) {
    return Diagnostic(ErrorCode::BadOption, "a slot of " + std::to_string(options.slot_bytes) + " bytes holds no " +
                                                std::string(model::name_of(plan_.protocol)) + " line of " +
                                                std::to_string(format.bytes));
  }
  GC3_CHECK(checked_bytes(slot_bytes_, slots_, "the slots of a connection"));
  // An extra line: at a stride of a power of two the first lines of all slots would compete for the same cache sets.
  slot_stride_ = (slot_bytes_ / interp::kCacheLine + 2) * interp::kCacheLine;
  return {};
}

Status ThreadsEngine::start_workers(const EngineOptions& options) {
  const auto ranks = static_cast<std::uint32_t>(plan_.ranks.size());
  std::uint32_t workers = options.workers != 0 ? options.workers : std::max(1U, std::thread::hardware_concurrency());
  // A rank's threadblocks stay together: its buffers, and the end of its run, then concern one worker only.
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
  GC3_ASSIGN(pool_, WorkerPool::create(workers));
  return {};
}

void ThreadsEngine::make_tasks() {
  tasks_.resize(plan_.threadblocks.size());
  semaphores_.resize(plan_.threadblocks.size());
  heads_.resize(plan_.connections.size());
  tails_.resize(plan_.connections.size());
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const interp::PlanThreadblock& tb = plan_.threadblocks[i];
    interp::Task& task = tasks_[i];
    task.steps = plan_.steps.data() + tb.first_step;
    task.waits = plan_.waits.data();
    task.regions = memory_.regions(tb.rank);
    task.semaphores = semaphores_.data() + plan_.ranks[tb.rank].first_tb;
    task.step_count = tb.step_count;
    task.rank = tb.rank;
    task.tb = tb.tb;
  }
}

Status ThreadsEngine::open_fifos() {
  const std::string purpose = "the FIFOs of " + std::to_string(plan_.connections.size()) + " connections";
  GC3_ASSIGN(const std::size_t connection_bytes, checked_bytes(slot_stride_, slots_, purpose));
  GC3_ASSIGN(const std::size_t bytes, checked_bytes(connection_bytes, plan_.connections.size(), purpose));
  fifos_ = Arena();
  GC3_ASSIGN(fifos_, Arena::create(bytes, purpose));
  for (std::size_t c = 0; c < plan_.connections.size(); ++c) {
    heads_[c].value = 0;
    tails_[c].value = 0;
    std::uint8_t* slots = fifos_.data() + c * connection_bytes;
    tasks_[plan_.connections[c].sender_tb].send = {&tails_[c], &heads_[c], slots, 0, 0, 0};
    tasks_[plan_.connections[c].receiver_tb].recv = {&tails_[c], &heads_[c], slots, 0, 0, 0};
  }
  fifos_open_ = true;
  return {};
}

Status ThreadsEngine::run(const Call& call, const Interrupted& interrupted) {
  GC3_CHECK(execute(call, 1, interrupted));
  return {};
}

Result<std::vector<double>> ThreadsEngine::time(const Call& call, std::uint32_t warmup, std::uint32_t iterations,
                                                const Interrupted& interrupted) {
  constexpr std::uint64_t kMostIterations = std::uint64_t{1} << 24U;  // their times are kept
  if (std::uint64_t{warmup} + iterations > kMostIterations) {
    return Diagnostic(ErrorCode::BadOption, std::to_string(warmup) + " + " + std::to_string(iterations) +
                                                " iterations; the most is " + std::to_string(kMostIterations));
  }
  GC3_ASSIGN(std::vector<double> seconds, execute(call, warmup + iterations, interrupted));
  seconds.erase(seconds.begin(), seconds.begin() + warmup);
  return seconds;
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

Result<std::vector<double>> ThreadsEngine::execute(const Call& call, std::uint32_t iterations,
                                                   const Interrupted& interrupted) {
  if (!usable()) return Diagnostic(ErrorCode::BadOption, "the engine was made before this process was forked");
  const std::lock_guard lock(mutex_);
  GC3_CHECK(check_call(plan_, call));
  const LineFormat format = format_of(plan_.protocol);
  const interp::Tiling tiling =
      plan_.tiling(call.count, model::size_of(call.type), slot_bytes_ / format.bytes * format.data);
  if (tiling.chunk_elems != 0 && tiling.tiles == 0) {
    return Diagnostic(ErrorCode::BadOption, "a slot of " + std::to_string(slot_bytes_) +
                                                " bytes cannot hold an element of each of " +
                                                std::to_string(plan_.max_count) + " chunks");
  }
  GC3_CHECK(memory_.bind(call, tiling));
  if (!fifos_open_) GC3_CHECK(open_fifos());
  if (call.op == model::ReduceOp::avg && !average_) average_.emplace(plan_);

  interp::Run run;
  run.chunk_elems = tiling.chunk_elems;
  run.tile_elems = tiling.tile_elems;
  run.tiles = tiling.tiles;
  run.first_tile = tiles_run_;
  run.slot_stride = slot_stride_;
  run.slot_bytes = slot_bytes_;
  run.slots = slots_;
  run.elem_bytes = static_cast<std::uint32_t>(model::size_of(call.type));
  run.regular = memory_.regular() ? 1 : 0;
  tiles_run_ += tiling.tiles * iterations;

  abort_asked_.store(false, std::memory_order_relaxed);
  control_.stop.store(false, std::memory_order_relaxed);
  why_.store(Why::nothing, std::memory_order_relaxed);
  barrier_->reset();
  std::vector<Times> times(std::size_t{iterations} * runners_.size());
  std::uint64_t seen = progress();
  double moved = now();
  const auto watch = [&] {
    if (abort_asked_.load(std::memory_order_relaxed) || (interrupted && interrupted())) return stop(Why::interrupted);
    if (const std::uint64_t p = progress(); p != seen) {
      seen = p;
      moved = now();
    } else if (now() - moved > timeout_s_) {
      stop(Why::timeout);
    }
  };
  pool_->run([&](std::uint32_t worker) { work(worker, run, call, times); }, std::min(kTickSeconds, timeout_s_ / 4),
             watch);
  if (why_.load(std::memory_order_relaxed) != Why::nothing) {
    fifos_open_ = false;  // messages of the given-up run may still lie in them
    return explain(run);
  }
  std::vector<double> seconds(iterations);
  for (std::size_t i = 0; i < iterations; ++i) {
    double first = times[i * runners_.size()].start;
    double last = 0;
    for (std::size_t w = 0; w < runners_.size(); ++w) {
      first = std::min(first, times[i * runners_.size() + w].start);
      last = std::max(last, times[i * runners_.size() + w].stop);
    }
    seconds[i] = last - first;
  }
  return seconds;
}

void ThreadsEngine::work(std::uint32_t worker, const interp::Run& first_run, const Call& call,
                         std::vector<Times>& times) {
  Runner& runner = *runners_[worker];
  const KernelSet& kernels = best_kernels();
  const auto type = static_cast<std::size_t>(call.type);
  const Kernel kernel = kernels.reduce[type][static_cast<std::size_t>(call.op)];
  const auto finish = [&](std::uint32_t rank) {
    memory_.copy_out(rank);
    if (call.op == model::ReduceOp::avg) average_->apply(rank, call, kernels.divide[type]);
  };
  interp::Run run = first_run;
  const auto ranks = static_cast<std::uint32_t>(plan_.ranks.size());
  for (std::size_t i = worker; i < times.size(); i += runners_.size(), run.first_tile += run.tiles) {
    runner.reset();
    barrier_->arrive_and_wait(control_.stop);
    times[i].start = now();
    for (std::uint64_t r = worker * std::uint64_t{ranks} / runners_.size();
         r < (worker + 1) * std::uint64_t{ranks} / runners_.size(); ++r) {
      memory_.copy_in(static_cast<std::uint32_t>(r));
    }
    const Ended ended =
        seed_.has_value() ? runner.replay(run, kernel, finish, *seed_) : runner.poll(run, kernel, finish);
    times[i].stop = now();
    if (ended == Ended::deadlocked) stop(Why::deadlock);
    if (ended != Ended::finished) return;
  }
}

Diagnostic ThreadsEngine::explain(const interp::Run& run) const {
  switch (why_.load(std::memory_order_relaxed)) {
    case Why::interrupted:
      return Diagnostic(ErrorCode::Aborted, "interrupted by the caller");
    case Why::timeout: {
      Diagnostic d(ErrorCode::Timeout, "nothing moved for " + in_words(timeout_s_) + " s");
      report_waiting(plan_, tasks_, run, d);
      return d;
    }
    case Why::deadlock: {
      Diagnostic d(ErrorCode::RuntimeDeadlock, "");
      report_waiting(plan_, tasks_, run, d);
      return d;
    }
    case Why::nothing:
      break;
  }
  return Diagnostic(ErrorCode::Internal, "a run ended early for no reason");
}

}  // namespace gc3::cpu
