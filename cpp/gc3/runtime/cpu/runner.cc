#include "gc3/runtime/cpu/runner.h"

#include <numeric>
#include <utility>

#include "gc3/base/mix64.h"

namespace gc3::cpu {
namespace {

using interp::Outcome;

// The steps that a task may take before the next task's turn.
constexpr std::uint32_t kBudget = 64;

}  // namespace

Runner::Runner(std::span<interp::Task> tasks, model::Protocol protocol, std::uint32_t workers, RunControl& control)
    : tasks_(tasks),
      protocol_(protocol),
      advance_(advance_for<CpuBlock>(protocol)),
      control_(control),
      spins_(spins_for(workers)),
      alone_(workers == 1) {
  if (tasks.empty()) return;
  first_rank_ = tasks.front().rank;
  remaining_.resize(tasks.back().rank - first_rank_ + 1);
}

void Runner::record(Recorder* recorder) {
  recorder_ = recorder;
  advance_ = recorder == nullptr ? advance_for<CpuBlock>(protocol_) : recording_advance(protocol_);
}

void Runner::reset() {
  live_.resize(tasks_.size());
  std::iota(live_.begin(), live_.end(), 0U);
  remaining_.assign(remaining_.size(), 0);
  for (interp::Task& t : tasks_) {
    t.tile = 0;
    t.step = 0;
    t.offset = 0;
    t.waiting = interp::Waiting::nothing;
    ++remaining_[t.rank - first_rank_];
  }
}

interp::Outcome Runner::advance(CpuBlock& block, const interp::Run& run, interp::Task& task,
                                std::uint32_t budget) const {
  if (computing_ == nullptr) return advance_(block, run, task, budget);
  return interp::advance<interp::Simple>(block, v_runs_[task.rank], task, 1);  // as processes
}

void Runner::note_progress() {
  progress_.store(progress_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // the only writer
  if (!alone_) control_.doorbell.ring();
}

void Runner::note_finished(const interp::Task& task, const FinishRank& finish) {
  if (--remaining_[task.rank - first_rank_] == 0) finish(task.rank);
}

bool Runner::sweep(CpuBlock& block, const interp::Run& run, const FinishRank& finish) {
  bool moved = false;
  for (std::size_t i = 0; i < live_.size();) {
    interp::Task& task = tasks_[live_[i]];
    const Outcome outcome = advance(block, run, task, kBudget);
    if (outcome != Outcome::blocked) {
      moved = true;
      note_progress();
    }
    if (outcome == Outcome::finished) {
      note_finished(task, finish);
      live_[i] = live_.back();
      live_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

Ended Runner::poll(const interp::Run& run, Kernel kernel, const FinishRank& finish) {
  if (recorder_ != nullptr) {
    RecordingBlock<CpuBlock> block(*recorder_, kernel);
    return poll(block, run, finish);
  }
  CpuBlock block(kernel, computing_);
  return poll(block, run, finish);
}

Ended Runner::poll(CpuBlock& block, const interp::Run& run, const FinishRank& finish) {
  Backoff backoff(spins_);
  while (!live_.empty()) {
    if (control_.stop.load(std::memory_order_relaxed)) return Ended::stopped;
    if (sweep(block, run, finish)) {
      backoff.renew();
      continue;
    }
    if (alone_) return Ended::deadlocked;  // no other worker can change anything
    if (!backoff.rest()) continue;
    const std::uint32_t ticket = control_.doorbell.prepare();
    if (control_.stop.load(std::memory_order_relaxed) || sweep(block, run, finish)) {
      control_.doorbell.cancel();
    } else {
      control_.doorbell.sleep(ticket);
    }
  }
  CpuBlock::settle();
  return Ended::finished;
}

Ended Runner::replay(const interp::Run& run, Kernel kernel, const FinishRank& finish, std::uint64_t seed) {
  if (recorder_ != nullptr) {
    RecordingBlock<CpuBlock> block(*recorder_, kernel);
    return replay(block, run, finish, seed);
  }
  CpuBlock block(kernel, computing_);
  return replay(block, run, finish, seed);
}

Ended Runner::replay(CpuBlock& block, const interp::Run& run, const FinishRank& finish, std::uint64_t seed) {
  // live_ has first the tasks that may move, then those that were blocked since a task last moved.
  std::size_t candidates = live_.size();
  for (std::uint64_t turn = 0; !live_.empty(); ++turn) {
    if (control_.stop.load(std::memory_order_relaxed)) return Ended::stopped;
    if (candidates == 0) return Ended::deadlocked;
    const std::size_t pick = mix64(seed ^ mix64(turn)) % candidates;
    interp::Task& task = tasks_[live_[pick]];
    const Outcome outcome = advance(block, run, task, 1);
    if (outcome == Outcome::blocked) {
      std::swap(live_[pick], live_[--candidates]);
      continue;
    }
    note_progress();
    if (outcome == Outcome::finished) {
      note_finished(task, finish);
      live_[pick] = live_.back();
      live_.pop_back();
    }
    candidates = live_.size();
  }
  CpuBlock::settle();
  return Ended::finished;
}

}  // namespace gc3::cpu
