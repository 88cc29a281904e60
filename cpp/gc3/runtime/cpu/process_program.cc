#include "gc3/runtime/cpu/process_program.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "gc3/base/after_fork.h"
#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/guarded.h"
#include "gc3/base/sha256.h"
#include "gc3/ir/image.h"
#include "gc3/runtime/cpu/loans.h"

namespace gc3::cpu {
namespace {

constexpr std::uint64_t kFifoBudget = std::uint64_t{256} << 20U;  // bytes of a program's FIFOs, all ranks together

// The bytes that a task may move, or the steps that it may take, before the next task's turn, for which another rank
// may be waiting.
constexpr std::uint64_t kTurnBytes = 64 * 1024;
constexpr std::uint64_t kTurnSteps = 64;

constexpr std::uint64_t kSmall = 64 * 1024;  // bytes of a rank's larger buffer, for which fewer cores are enough

std::uint64_t fingerprint_of(std::span<const std::byte> image, const FifoGeometry& geometry, std::string_view key) {
  const std::array<std::uint64_t, 2> sizes{geometry.slots, geometry.slot_bytes};
  Sha256 all;
  all.update({reinterpret_cast<const char*>(sizes.data()), sizeof sizes});
  all.update({reinterpret_cast<const char*>(image.data()), image.size()});
  const Digest keyed = hmac_sha256(key, as_text(all.finish()));
  std::uint64_t word = 0;
  std::memcpy(&word, keyed.data(), sizeof word);
  return word;
}

Status check_has(const model::Collective& collective, std::uint32_t rank) {
  if (rank < collective.ranks()) return {};
  return Diagnostic(ErrorCode::BadArgument, "a program of " + std::to_string(collective.ranks()) +
                                                " ranks in a communicator that has a rank " + std::to_string(rank));
}

// That this rank computes: peers are patient.
class Computes {
 public:
  explicit Computes(core::Group& group) : group_(group) { group_.computes(true); }
  ~Computes() { group_.computes(false); }
  Computes(const Computes&) = delete;
  Computes& operator=(const Computes&) = delete;

 private:
  core::Group& group_;
};

}  // namespace

std::unique_lock<std::mutex> Membership::look() {
  std::unique_lock lock(mutex, std::defer_lock);
  if (check_thread().ok()) static_cast<void>(take(lock, process));
  return lock;
}

Status Membership::wait() {
  std::unique_lock lock(mutex, std::defer_lock);
  GC3_CHECK(take(lock, process));
  lock.release();
  return {};
}

Diagnostic Membership::closed() { return Diagnostic(ErrorCode::CommunicatorClosed, ""); }

Diagnostic Membership::nested() { return Diagnostic(ErrorCode::NestedCall, "the outer call has not finished"); }

Status Membership::barrier(const core::Interrupted& interrupted) const {
  if (meets != nullptr) return meets->meet(interrupted);
  core::CallRecord record;
  record.kind = core::CallKind::barrier;
  GC3_CHECK(group->begin(record));
  GC3_CHECK(group->exchange({}, interrupted));
  group->finish();
  return {};
}

ProcessProgram::ProcessProgram(interp::Plan plan, std::uint32_t rank, std::shared_ptr<Membership> members)
    : plan_(std::move(plan)),
      rank_(rank),
      members_(std::move(members)),
      memory_(plan_, rank, 1),
      inputs_(plan_.ranks.size()),
      outputs_(plan_.ranks.size()),
      factors_(plan_.ranks.size()) {}

Result<std::unique_ptr<ProcessProgram>> ProcessProgram::create(const ir::Program& program, std::uint32_t rank,
                                                               std::uint32_t slots, std::uint64_t slot_bytes,
                                                               std::string_view key,
                                                               std::shared_ptr<Membership> members,
                                                               const ThresholdChanges& changes) {
  GC3_CHECK(check_has(program.collective, rank));
  GC3_ASSIGN(interp::Plan plan, interp::Plan::create_computing(program));
  return create(std::move(plan), ir::write_image(program, false), rank, slots, slot_bytes, key, std::move(members),
                changes);
}

Result<std::unique_ptr<ProcessProgram>> ProcessProgram::create(const ir::ClassProgram& read, std::uint32_t rank,
                                                               std::uint32_t slots, std::uint64_t slot_bytes,
                                                               std::string_view key,
                                                               std::shared_ptr<Membership> members,
                                                               const ThresholdChanges& changes) {
  if (!read.symmetry.exists()) {
    return create(read.representative, rank, slots, slot_bytes, key, std::move(members), changes);
  }
  if (!ir::runs_alone(read)) {
    GC3_ASSIGN(const ir::Program program, ir::expand(read));
    return create(program, rank, slots, slot_bytes, key, std::move(members), changes);
  }
  GC3_CHECK(check_has(read.representative.collective, rank));
  GC3_ASSIGN(interp::Plan plan, interp::Plan::create(read, rank));
  return create(std::move(plan), ir::write_image(read, false), rank, slots, slot_bytes, key, std::move(members),
                changes);
}

Result<std::unique_ptr<ProcessProgram>> ProcessProgram::create(interp::Plan plan, std::vector<std::byte> image,
                                                               std::uint32_t rank, std::uint32_t slots,
                                                               std::uint64_t slot_bytes, std::string_view key,
                                                               std::shared_ptr<Membership> members,
                                                               const ThresholdChanges& changes) {
  std::unique_ptr<ProcessProgram> made(new ProcessProgram(std::move(plan), rank, std::move(members)));
  made->access_.may_lend = steps_that_lend(made->plan_, rank);
  made->changes_ = changes;
  // A program that pulls reads every message that can be read, unless the caller says from which size on.
  for (std::size_t k = 0; made->plan_.pulls && k < kThresholds.size(); ++k) {
    const bool reads = kThresholds[k].member == &Thresholds::moved || kThresholds[k].member == &Thresholds::combined;
    if (reads && !made->changes_.values[k]) made->changes_.values[k] = kThresholds[k].least;
  }
  GC3_ASSIGN(made->geometry_, FifoGeometry::choose(made->plan_, slots, made->slot_for(slot_bytes), kFifoBudget));
  const HostLinks* const links = made->members_->links.get();
  if (links != nullptr && links->apart(made->plan_)) GC3_CHECK(made->geometry_.check_between_hosts());
  const model::Collective& collective = made->plan_.collective;
  made->record_.collective = collective.kind();
  made->record_.in_place = collective.in_place();
  made->record_.root = collective.root();
  made->image_ = std::move(image);
  made->record_.program = fingerprint_of(made->image_, made->geometry_, key);

  const interp::PlanRank& own = made->plan_.ranks[rank];
  made->semaphores_.resize(own.tb_count);
  made->live_.resize(own.tb_count);
  made->senders_.resize(own.tb_count);
  made->receivers_.resize(own.tb_count);
  made->loans_ = {std::vector<std::uint64_t>(own.tb_count), std::vector<std::uint64_t>(own.tb_count)};
  for (std::uint32_t t = 0; t < own.tb_count; ++t) {
    const std::uint32_t tb = own.first_tb + t;
    made->tasks_.push_back(made->plan_.task(tb, made->memory_.regions(rank), made->semaphores_.data()));
    made->access_.senders.push_back(made->plan_.threadblocks[tb].recv_peer);
  }
  made->access_.first_step = made->tasks_.empty() ? nullptr : made->tasks_.front().steps;
  return made;
}

std::uint64_t ProcessProgram::slot_for(std::uint64_t wanted) const {
  const bool one_tile = plan_.collective.has_tensors();  // whose caller knows the longest message
  if (plan_.protocol != model::Protocol::Simple || members_->links != nullptr || one_tile) return wanted;
  const core::SingleCopy& single = members_->single_copy;
  const Thresholds thresholds = changes_.applied_to(single.thresholds);
  const std::uint64_t read_from = std::min({thresholds.moved, thresholds.combined, thresholds.halved});
  const std::uint64_t least = std::max(thresholds.copied_slot, std::uint64_t{plan_.max_count} * model::kMostElemBytes);
  return single.reads && read_from <= wanted ? wanted : std::min(wanted, least);
}

std::uint32_t ProcessProgram::budget_of(const interp::Run& run) const {
  if (network_.links != nullptr) return kTurnSteps;  // until each task waits, and has said for what
  const std::uint64_t step_bytes = std::max<std::uint64_t>(run.tile_elems * run.elem_bytes * plan_.max_count, 1);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kTurnBytes / step_bytes, 1, kTurnSteps));
}

Status ProcessProgram::bind(const RankCall& call) {
  const bool is_alike = is_bound_ && moves_ == memory_.moves() && call.is_alike(bound_);
  if (is_alike && call.has_buffers_of(bound_)) return {};
  is_bound_ = false;
  inputs_[rank_] = call.input;
  outputs_[rank_] = call.output;
  factors_[rank_] = call.factor;
  if (plan_.collective.has_tensors()) {
    return Diagnostic(ErrorCode::NotWithCompute, "a run of chunks of one length, without functions to compute");
  }
  const Call all{inputs_, outputs_, call.count, call.type, call.op, factors_};
  GC3_CHECK(check_rank(plan_, all, rank_));
  bound_ = call;
  if (is_alike && memory_.move_to(rank_, call.input, call.output)) {
    is_bound_ = true;
    return {};
  }
  GC3_ASSIGN(run_, make_run(plan_, geometry_, call.count, model::size_of(call.type)));
  GC3_CHECK(memory_.bind(all, run_));
  budget_ = budget_of(run_);
  const interp::PlanRank& own = plan_.ranks[rank_];
  is_small_ = call.count * model::size_of(call.type) <= kSmall / std::max({own.input_blocks, own.output_blocks, 1U});
  moves_ = memory_.moves();
  is_bound_ = true;
  return {};
}

Status ProcessProgram::load(const core::Interrupted& interrupted, std::optional<double> timeout_s) {
  Membership::Turn turn;
  GC3_CHECK(members_->enter(turn, timeout_s));
  return load(turn, interrupted);
}

Status ProcessProgram::load(const Membership::Turn& /*turn*/, const core::Interrupted& interrupted) {
  core::CallRecord record = record_;
  record.kind = core::CallKind::load;
  GC3_CHECK(group().begin(record));
  const Status status = open(interrupted);
  group().finish();
  return status;
}

Status ProcessProgram::open(const core::Interrupted& interrupted) {
  if (open_) return {};
  core::Group& group = this->group();
  FifoPool& pool = *members_->fifos;
  // Messages carry only 16 bits of the ranks' histories. This exchange compares all bits, once for each program.
  GC3_CHECK(group.exchange({}, interrupted));
  const bool has_core_each = group.wait_policy().core_each();
  const bool only_sends = std::ranges::none_of(tasks_, [](const interp::Task& task) {
    return std::any_of(task.steps, task.steps + task.step_count,
                       [](const interp::Step& step) { return interp::does_of(step.opcode).receives; });
  });
  access_.job = group.job().get();
  const core::SingleCopy& single = group.single_copy();
  const Thresholds thresholds = changes_.applied_to(single.thresholds);
  if (single.reads) access_.least_remote = {Thresholds::kNever, thresholds.moved, thresholds.combined};
  access_.helps = has_core_each && only_sends && single.reads && single.writes;
  access_.least_helped = thresholds.halved;
  spins_ = thresholds.spins;
  access_.processes = group.processes();
  access_.pidfds = group.pidfds();
  access_.copies = group.job()->copies();
  GC3_CHECK(pool.open(plan_, geometry_, interrupted));
  for (std::uint32_t t = 0; t < tasks_.size(); ++t) {
    const interp::PlanThreadblock& tb = plan_.threadblocks[plan_.ranks[group.rank()].first_tb + t];
    if (tb.send_connection != kNone) senders_[t] = &pool.ends(plan_, geometry_, tb.send_connection);
    if (tb.recv_connection != kNone) receivers_[t] = &pool.ends(plan_, geometry_, tb.recv_connection);
    network_.outlets.push_back(senders_[t] != nullptr ? senders_[t]->outlet : nullptr);
    network_.inlets.push_back(receivers_[t] != nullptr ? receivers_[t]->inlet : nullptr);
    if (network_.outlets.back() != nullptr || network_.inlets.back() != nullptr) network_.links = members_->links.get();
  }
  open_ = true;
  return {};
}

void ProcessProgram::take() {
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    if (senders_[t] != nullptr) tasks_[t].send = senders_[t]->send;
    if (receivers_[t] != nullptr) tasks_[t].recv = receivers_[t]->recv;
  }
}

void ProcessProgram::release() {
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    if (senders_[t] != nullptr) senders_[t]->send = tasks_[t].send;
    if (receivers_[t] != nullptr) receivers_[t]->recv = tasks_[t].recv;
  }
}

void ProcessProgram::share_scratch() {
  if (shares_scratch_ || plan_.protocol != model::Protocol::Simple) return;
  // Messages from shared scratch need no copy, and any number of ranks can read it at the same time.
  memory_.take_scratch_from([job = group().job()](std::uint64_t bytes) { return job->allocate_shared(bytes); });
  shares_scratch_ = true;
}

Status ProcessProgram::begin(interp::Run& run, const core::Interrupted& interrupted) {
  GC3_CHECK(group().begin(record_));
  if (!open_) {
    Status status = open(interrupted);
    if (!status.ok()) {
      group().finish();
      return status;
    }
  }
  members_->fifos->hand_to(*this);
  run.tag = group().tag();
  run.first_tile = tiles_run_;
  tiles_run_ += run.tiles;
  return {};
}

void ProcessProgram::average(const Call& call) {
  if (call.op != model::ReduceOp::avg) return;
  if (!average_) average_.emplace(plan_);
  average_->apply(rank_, call, best_kernels().divide[static_cast<std::size_t>(call.type)]);
}

Status ProcessProgram::run(const RankCall& call, const core::Interrupted& interrupted) {
  Membership::Turn turn;
  GC3_CHECK(members_->enter(turn, call.timeout_s));
  return run_locked(call, interrupted);
}

Status ProcessProgram::run(const Membership::Turn& /*turn*/, const RankCall& call,
                           const core::Interrupted& interrupted) {
  return run_locked(call, interrupted);
}

template <class Run>
Result<std::vector<double>> ProcessProgram::timed(std::uint32_t warmup, std::uint32_t iterations,
                                                  const core::Interrupted& interrupted, Run run) {
  Membership::Turn turn;
  GC3_CHECK(members_->enter(turn));
  std::vector<double> seconds(iterations);
  for (std::uint32_t i = 0; i < warmup + iterations; ++i) {
    GC3_CHECK(members_->barrier(interrupted));
    const auto start = std::chrono::steady_clock::now();
    GC3_CHECK(run());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i >= warmup) seconds[i - warmup] = took.count();
  }
  return seconds;
}

Result<std::vector<double>> ProcessProgram::times(const RankCall& call, std::uint32_t warmup, std::uint32_t iterations,
                                                  const core::Interrupted& interrupted) {
  return timed(warmup, iterations, interrupted, [&] { return run_locked(call, interrupted); });
}

Result<std::vector<double>> ProcessProgram::time_v(const VRankCall& call, std::uint32_t warmup,
                                                   std::uint32_t iterations, const core::Interrupted& interrupted) {
  GC3_CHECK(check_runs(warmup, iterations));
  return timed(warmup, iterations, interrupted, [&] { return run_v_locked(call, interrupted); });
}

Result<Recording> ProcessProgram::record(const RankCall& call, std::size_t most, const core::Interrupted& interrupted) {
  Membership::Turn turn;
  GC3_CHECK(members_->enter(turn));
  Recorder recorder(tasks_, rank_, most);
  GC3_CHECK(members_->barrier(interrupted));
  const std::int64_t begin = steady_now();
  GC3_CHECK(run_locked(call, interrupted, &recorder));
  return Recording{begin, steady_now(), recorder.steps(), recorder.dropped()};
}

Status ProcessProgram::meet(const core::Interrupted& interrupted) {
  const std::uint8_t one = 1;
  std::uint8_t sum = 0;
  return run_locked({&one, &sum, 1, model::DataType::uint8}, interrupted, nullptr, core::CallKind::barrier);
}

Status ProcessProgram::run_locked(const RankCall& call, const core::Interrupted& interrupted, Recorder* recorder,
                                  core::CallKind kind) {
  share_scratch();
  GC3_CHECK(get_scratch_back(interrupted));
  GC3_CHECK(bind(call));
  record_.kind = kind;
  record_.count = call.count;
  record_.type = call.type;
  record_.op = call.op;
  GC3_CHECK(begin(run_, interrupted));
  const Kernel kernel = best_kernels().reduce[static_cast<std::size_t>(call.type)][static_cast<std::size_t>(call.op)];
  if (recorder != nullptr) recorder->begin(steady_now());
  memory_.copy_in(rank_);
  const Status status = guarded([&] { return execute_collective(kernel, recorder, interrupted); });
  if (!status.ok()) return withdraw(status.error());
  memory_.copy_out(rank_);
  average({inputs_, outputs_, call.count, call.type, call.op});
  group().finish();
  return {};
}

Status ProcessProgram::bind_v(const VRankCall& call) {
  if (no_v_form_) return *no_v_form_;
  if (!v_memory_) {
    GC3_ASSIGN(const ir::Program program, ir::read_image(image_));
    std::optional<interp::Plan> whole;
    if (plan_.only != ir::kNoRank) {
      GC3_ASSIGN(whole, interp::Plan::create(program));
    }
    Result<interp::VLayout> layout = interp::VLayout::create(program, whole ? *whole : plan_, rank_);
    if (!layout.ok()) return no_v_form_.emplace(std::move(layout.error()));
    v_memory_.emplace(std::move(layout).value(), plan_, rank_);
  }
  if (v_memory_->is_bound(call, memory_)) return {};
  const std::uint64_t longest = *std::ranges::max_element(call.counts);
  GC3_ASSIGN(interp::Run run, make_run(plan_, geometry_, longest, model::size_of(call.type)));
  if (plan_.collective.has_tensors()) {
    if (run.tiles > 1) {
      return Diagnostic(ErrorCode::BadOption, "a slot of " + std::to_string(geometry_.slot_bytes) +
                                                  " bytes for chunks of " + std::to_string(longest) +
                                                  " elements, which operations take whole");
    }
    run.tiles = 1;  // also of chunks that are all empty
  }
  static_cast<interp::Run&>(v_run_) = run;
  v_run_.first_step = access_.first_step;
  v_budget_ = plan_.collective.has_tensors() ? 1 : budget_of(run);  // messages move between any two operations
  return v_memory_->bind(call, memory_, v_run_);
}

Status ProcessProgram::run_v(const VRankCall& call, const core::Interrupted& interrupted) {
  Membership::Turn turn;
  GC3_CHECK(members_->enter(turn, call.timeout_s));
  return run_v_locked(call, interrupted);
}

Status ProcessProgram::run_v(const Membership::Turn& /*turn*/, const VRankCall& call,
                             const core::Interrupted& interrupted) {
  return run_v_locked(call, interrupted);
}

Status ProcessProgram::compute(const VRankCall& call, Computing::Function function,
                               const core::Interrupted& interrupted) {
  if (!plan_.collective.has_tensors()) {
    return Diagnostic(ErrorCode::BadArgument, "a program without named tensors has nothing to compute");
  }
  GC3_CHECK(check_computing(plan_.collective, call.type, call.op));
  Membership::Turn turn;
  GC3_CHECK(members_->enter(turn, call.timeout_s));
  const auto told = [&](const Computation& computation) -> Status {
    const Computes computes(group());
    Companion::During during(*members_->companion, meanwhile_);
    GC3_CHECK(function(computation));
    GC3_CHECK(during.end());
    return group().check();  // an end that another thread has asked for meanwhile is that of this call
  };
  computing_.begin(told, [] {});
  Status status = run_v_locked(call, interrupted);
  computing_.end();
  return status;
}

Status ProcessProgram::run_v_locked(const VRankCall& call, const core::Interrupted& interrupted) {
  share_scratch();
  GC3_CHECK(get_scratch_back(interrupted));
  GC3_CHECK(bind_v(call));
  record_.kind = call.arrays.empty() ? core::CallKind::v_form : core::CallKind::many;
  record_.count = v_memory_->hash();
  record_.type = call.type;
  record_.op = call.op;
  GC3_CHECK(begin(v_run_, interrupted));
  v_memory_->copy_in();
  const Kernel kernel = best_kernels().reduce[static_cast<std::size_t>(call.type)][static_cast<std::size_t>(call.op)];
  const Status status = guarded([&] { return execute_v(kernel, interrupted); });
  if (!status.ok()) return withdraw(status.error());
  v_memory_->copy_out();
  // The output of a collective that reduces is one block, of a length or of arrays. What bind() has bound stays.
  void* const bound = outputs_[rank_];
  for (std::size_t a = 0; a < call.output.size() && call.op == model::ReduceOp::avg; ++a) {
    outputs_[rank_] = call.output[a];
    average({inputs_, outputs_, call.arrays.empty() ? call.counts[rank_] : call.arrays[a], call.type, call.op});
  }
  outputs_[rank_] = bound;
  group().finish();
  return {};
}

}  // namespace gc3::cpu
