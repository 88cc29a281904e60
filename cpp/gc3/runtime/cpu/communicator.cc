#include "gc3/runtime/cpu/communicator.h"

#include <chrono>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/interp/iterations.h"

namespace gc3::cpu {

Communicator::Communicator(std::unique_ptr<core::Group> group)
    : rank_(group->rank()),
      size_(group->size()),
      key_(group->job()->key()),
      agreed_(group->agreed()),
      single_copy_(group->job()->single_copy()),
      wait_policy_(group->shared_wait_policy()),
      group_(std::move(group)),
      pool_(new FifoPool(*group_)) {}

Result<std::unique_ptr<Communicator>> Communicator::init(const core::Meeting& meeting, const Options& options) {
  GC3_ASSIGN(std::unique_ptr<core::Group> group, core::Group::world(meeting, options));
  return std::unique_ptr<Communicator>(new Communicator(std::move(group)));
}

Status Communicator::ready() const {
  if (group_ == nullptr) return Diagnostic(ErrorCode::CommunicatorClosed, "");
  return {};
}

Result<std::shared_ptr<ProcessProgram>> Communicator::prepare(const ir::Program& program, std::uint32_t slots,
                                                              std::uint64_t slot_bytes) {
  if (program.collective.ranks() != size_) {
    return Diagnostic(ErrorCode::BadArgument, "a program of " + std::to_string(program.collective.ranks()) +
                                                  " ranks in a communicator of " + std::to_string(size_));
  }
  GC3_ASSIGN(std::shared_ptr<ProcessProgram> made, ProcessProgram::create(program, rank_, slots, slot_bytes, key_));
  const std::lock_guard lock(programs_mutex_);
  for (const auto& known : programs_) {
    if (known->is_same(*made)) return known;
  }
  programs_.push_back(std::move(made));
  return programs_.back();
}

Status Communicator::load(ProcessProgram& program, const Interrupted& interrupted) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(ready());
  return program.load(*group_, *pool_, interrupted);
}

Status Communicator::run(ProcessProgram& program, const RankCall& call, const Interrupted& interrupted) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(ready());
  return program.run(*group_, *pool_, call, interrupted);
}

Status Communicator::run_v(ProcessProgram& program, const VRankCall& call, const Interrupted& interrupted) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(ready());
  return program.run_v(*group_, *pool_, call, interrupted);
}

Result<std::vector<std::uint64_t>> Communicator::exchange(core::CallRecord record,
                                                          const std::vector<std::uint64_t>& own,
                                                          const Interrupted& interrupted) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(ready());
  record.kind = core::CallKind::counts;
  GC3_CHECK(group_->begin(record));
  Result<std::vector<std::uint64_t>> all = group_->exchange_words(own, interrupted);
  if (all.ok()) group_->finish();
  return all;
}

Status Communicator::barrier(const Interrupted& interrupted) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(ready());
  return barrier_locked(interrupted);
}

Status Communicator::barrier_locked(const Interrupted& interrupted) {
  core::CallRecord record;
  record.kind = core::CallKind::barrier;
  GC3_CHECK(group_->begin(record));
  GC3_CHECK(group_->exchange({}, interrupted));
  group_->finish();
  return {};
}

Result<std::unique_ptr<Communicator>> Communicator::split(std::optional<std::uint32_t> color, std::int64_t key,
                                                          const Interrupted& interrupted) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(ready());
  GC3_ASSIGN(std::unique_ptr<core::Group> group, group_->split(color, key, interrupted));
  if (group == nullptr) return std::unique_ptr<Communicator>();
  return std::unique_ptr<Communicator>(new Communicator(std::move(group)));
}

Result<std::unique_ptr<Communicator>> Communicator::subgroup(const std::vector<std::uint32_t>& ranks, std::string name,
                                                             std::optional<double> timeout_s,
                                                             const Interrupted& interrupted) {
  GC3_CHECK(ready());
  GC3_ASSIGN(std::unique_ptr<core::Group> group, group_->subgroup(ranks, std::move(name), timeout_s, interrupted));
  return std::unique_ptr<Communicator>(new Communicator(std::move(group)));
}

Result<std::vector<double>> Communicator::time(ProcessProgram& program, const RankCall& call, std::uint32_t warmup,
                                               std::uint32_t iterations, const Interrupted& interrupted) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(ready());
  GC3_ASSIGN(const std::uint32_t runs, interp::runs_of(warmup, iterations));
  std::vector<double> seconds(iterations);
  for (std::uint32_t i = 0; i < runs; ++i) {
    GC3_CHECK(barrier_locked(interrupted));
    const auto start = std::chrono::steady_clock::now();
    GC3_CHECK(program.run(*group_, *pool_, call, interrupted));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i >= warmup) seconds[i - warmup] = took.count();
  }
  return seconds;
}

Result<Recording> Communicator::record(ProcessProgram& program, const RankCall& call, std::size_t most,
                                       const Interrupted& interrupted) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(ready());
  Recorder recorder(program.tasks(), rank_, most);
  GC3_CHECK(barrier_locked(interrupted));
  Recording found;
  found.begin = steady_now();
  GC3_CHECK(program.run(*group_, *pool_, call, interrupted, &recorder));
  found.end = steady_now();
  found.steps = recorder.steps();
  found.dropped = recorder.dropped();
  return found;
}

Result<std::shared_ptr<std::uint8_t>> Communicator::allocate(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(ready());
  return group_->job()->allocate_shared(bytes);
}

std::vector<pid_t> Communicator::processes() {
  const std::lock_guard lock(mutex_);
  return group_ == nullptr ? std::vector<pid_t>() : group_->processes();
}

void Communicator::abort() {
  // Takes no lock, because the call to be aborted holds it. close() must not run at the same time.
  if (group_ != nullptr) group_->abort();
}

void Communicator::close() {
  const std::scoped_lock lock(mutex_, programs_mutex_);
  for (const auto& program : programs_) {
    if (group_ == nullptr) break;
    if (!program->get_scratch_back(*group_, {}).ok()) break;  // the group has been given up, so no read counts any more
  }
  for (const auto& program : programs_) program->close();
  programs_.clear();
  pool_.reset();
  group_.reset();
}

}  // namespace gc3::cpu
