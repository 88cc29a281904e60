#include "gc3/runtime/direct/process_job.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/guarded.h"
#include "gc3/base/sha256.h"
#include "gc3/runtime/core/waiter.h"
#include "gc3/runtime/direct/chunk_classes.h"
#include "gc3/runtime/interp/checked_bytes.h"

namespace gc3::direct {
namespace {

constexpr const char* kBuffers[] = {"input", "output"};

std::uint64_t fingerprint_of(const Program& program, const cpu::ProcessProgram* messages, std::string_view key) {
  const std::string also = messages == nullptr ? "" : std::to_string(messages->fingerprint());
  const Digest keyed = hmac_sha256(key, ir::direct::to_text(program) + also);
  std::uint64_t word = 0;
  std::memcpy(&word, keyed.data(), sizeof word);
  return word;
}

std::string not_registered(std::size_t buffer, std::uint32_t rank) {
  return "the " + std::string(kBuffers[buffer]) + " of rank " + std::to_string(rank) + " is not registered memory";
}

}  // namespace

ProcessJob::ProcessJob(Decoded decoded, const cpu::Communicator& comm, std::shared_ptr<cpu::ProcessProgram> messages)
    : decoded_(std::move(decoded)),
      plan_(plan_of(decoded_)),
      rank_(comm.rank()),
      members_(comm.members()),
      messages_(std::move(messages)),
      memory_(plan_, rank_, 1),
      inputs_(plan_.ranks.size()),
      outputs_(plan_.ranks.size()),
      factors_(plan_.ranks.size()),
      scratch_at_(plan_.ranks.size()),
      buffers_(plan_.ranks.size()),
      found_(plan_.ranks.size()) {}

Result<std::shared_ptr<ProcessJob>> ProcessJob::create(const Program& program, const cpu::Communicator& comm,
                                                       std::shared_ptr<cpu::ProcessProgram> messages) {
  if (program.collective.ranks() != comm.size()) {
    return Diagnostic(ErrorCode::BadArgument, "a program of " + std::to_string(program.collective.ranks()) +
                                                  " ranks in a communicator of " + std::to_string(comm.size()));
  }
  GC3_ASSIGN(Decoded decoded, Decoded::create(program));
  std::shared_ptr<ProcessJob> made(new ProcessJob(std::move(decoded), comm, std::move(messages)));
  GC3_ASSIGN(made->plan_.moves_between_classes, moves_between_classes(made->decoded_));
  for (const auto& uses : made->decoded_.uses) made->stores_ |= std::ranges::count(uses, Use::stores) != 0;
  made->record_.collective = program.collective.kind();
  made->record_.in_place = program.collective.in_place();
  made->record_.root = program.collective.root();
  made->record_.program = fingerprint_of(program, made->messages_.get(), comm.key());
  return made;
}

std::uint64_t ProcessJob::reached(std::uint32_t rank, std::size_t buffer) const {
  if (decoded_.uses[rank][buffer] == Use::nothing) return 0;
  const interp::PlanRank& has = plan_.ranks[rank];
  return block_bytes_ * (buffer == 0 ? has.input_blocks : has.output_blocks);
}

Status ProcessJob::bind(const cpu::RankCall& call, bool copies) {
  const auto is_elsewhere = [](std::uint64_t at) { return at == core::Window::kNowhere; };
  const bool again = is_bound_ && call.is_alike(bound_) && call.has_buffers_of(bound_);
  if (!again || (!copies && copied_ != std::array<bool, 2>{})) GC3_CHECK(bind_to(call, {}));
  if (!copies || std::ranges::none_of(own_, is_elsewhere)) return {};
  return bind_to(call, {is_elsewhere(own_[0]), is_elsewhere(own_[1])});
}

Status ProcessJob::bind_to(const cpu::RankCall& call, std::array<bool, 2> copied) {
  is_bound_ = false;
  inputs_[rank_] = call.input;
  outputs_[rank_] = call.output;
  factors_[rank_] = call.factor;
  const interp::Call all{inputs_, outputs_, call.count, call.type, call.op, factors_};
  GC3_CHECK(check_rank(plan_, all, rank_));
  const std::uint32_t chunks = plan_.collective.chunks();
  shape_ = {call.count,
            model::size_of(call.type),
            cpu::best_kernels().reduce[static_cast<std::size_t>(call.type)][static_cast<std::size_t>(call.op)],
            0,
            plan_.regular(call.count),
            false};
  interp::Run run;
  run.chunk_elems = (call.count + chunks - 1) / chunks;
  run.regular = shape_.regular ? 1 : 0;
  const std::shared_ptr<core::Job>& job = group().job();
  // No other rank touches a copy between two calls.
  memory_.take_copies_from([job](std::uint64_t bytes) { return job->allocate_shared(bytes); });
  GC3_CHECK(memory_.bind(all, run, copied));
  block_bytes_ = (plan_.pads(call.count) ? run.chunk_elems * chunks : call.count) * shape_.elem_bytes;
  const interp::Region* regions = memory_.regions(rank_);
  for (std::size_t b = 0; b < 2; ++b) {
    own_[b] = reached(rank_, b) == 0 ? 0 : job->offset_of(regions[b].base);
    shape_.streams |= regions[b].streams != 0;
  }
  buffers_[rank_].input = regions[0].base;
  buffers_[rank_].output = regions[1].base;
  if (call.op == model::ReduceOp::avg && !average_) average_.emplace(plan_);
  bound_ = call;
  copied_ = copied;
  is_bound_ = true;
  return {};
}

Status ProcessJob::open(const core::Interrupted& interrupted) {
  const Program& program = decoded_.program;
  const std::size_t bytes = Counters::bytes(program);
  if (counters_.data() == nullptr) {
    const std::size_t all = bytes + plan_.ranks.size() * sizeof(Said);
    GC3_ASSIGN(counters_, group().allocate(all, "the counters of a one-sided program", interrupted));
    machine_.emplace(decoded_, Counters(counters_.data(), program), rank_, rank_ + 1);
  }
  const std::size_t least =
      Shape::least_stride(shape_.count, plan_.collective.chunks(), shape_.elem_bytes);  // on all ranks the same
  if (least > stride_) {
    // The old scratch exists as long as the group, so it at least doubles.
    const std::size_t stride = std::max(least, 2 * stride_);
    std::vector<std::uint64_t> parts;
    std::uint64_t end = 0;
    for (std::uint32_t r = 0; r < plan_.ranks.size(); ++r) {
      const std::uint64_t copies = std::uint64_t{decoded_.scratch_chunks[r]} * program.halves;
      GC3_ASSIGN(const std::size_t part, interp::checked_bytes(stride, copies, "the scratch of a rank"));
      parts.push_back(core::whole_pages(part));
      scratch_at_[r] = end;
      end += parts.back();
    }
    if (end != 0) {
      GC3_ASSIGN(scratch_, group().allocate(parts, "the scratch of a one-sided program", interrupted));
    }
    for (std::uint32_t r = 0; r < plan_.ranks.size() && end != 0; ++r) {
      buffers_[r].scratch = scratch_.data() + scratch_at_[r];
    }
    stride_ = stride;
  }
  shape_.stride = stride_;
  return {};
}

bool ProcessJob::find_buffers(const Step& step) {
  for (const Place& place : std::span(decoded_.places).subspan(step.first, step.sources + step.targets)) {
    if (place.rank == rank_ || found_[place.rank].now) continue;
    if (Status found = find_buffers(place.rank); !found.ok()) {
      problem_ = std::move(found.error());
      return false;
    }
    found_[place.rank].now = true;
  }
  return true;
}

Status ProcessJob::find_buffers(std::uint32_t rank) {
  GC3_CHECK(group().check_same(rank));
  Found& found = found_[rank];
  for (std::size_t b = 0; b < 2; ++b) {
    const std::uint64_t at = std::atomic_ref(said(rank).at[b]).load(std::memory_order_relaxed);
    const std::uint64_t bytes = reached(rank, b);
    if (bytes == 0 || (at == found.at[b] && bytes == found.bytes[b])) continue;
    found.bytes[b] = 0;
    std::uint8_t* const place = group().job()->place(at, bytes);
    if (place == nullptr) {
      return group().give_up(Diagnostic(
          ErrorCode::SystemRefused, "rank " + std::to_string(rank_) + " cannot reach the " + kBuffers[b] + " of rank " +
                                        std::to_string(rank) + ": the memory that the processes share has no " +
                                        std::to_string(bytes) + " bytes at offset " + std::to_string(at)));
    }
    if (b == 0) buffers_[rank].input = place;
    if (b == 1) buffers_[rank].output = place;
    found.at[b] = at;
    found.bytes[b] = bytes;
  }
  return {};
}

Status ProcessJob::run(const cpu::RankCall& call, const core::Interrupted& interrupted) {
  Turn turn;
  GC3_CHECK(members_->enter(turn, call.timeout_s));
  return run(turn, call, interrupted);
}

Result<std::vector<double>> ProcessJob::times(const cpu::RankCall& call, std::uint32_t warmup, std::uint32_t iterations,
                                              const core::Interrupted& interrupted) {
  Turn turn;
  GC3_CHECK(members_->enter(turn));
  std::vector<double> seconds(iterations);
  for (std::uint32_t i = 0; i < warmup + iterations; ++i) {
    GC3_CHECK(members_->barrier(interrupted));
    const auto start = std::chrono::steady_clock::now();
    GC3_CHECK(run(turn, call, interrupted));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i >= warmup) seconds[i - warmup] = took.count();
  }
  return seconds;
}

Status ProcessJob::run_messages(const Turn& turn, const cpu::RankCall& call, const core::Interrupted& interrupted) {
  if (messages_ != nullptr) return messages_->run(turn, call, interrupted);
  return Diagnostic(ErrorCode::BadBuffer, why_messages_ + ", and the one-sided program '" + decoded_.program.name +
                                              "' was not compiled here, so there are no messages in its place");
}

Status ProcessJob::run(const Turn& turn, const cpu::RankCall& call, const core::Interrupted& interrupted) {
  if (members_->links != nullptr) {
    why_messages_ = "the ranks are on several hosts";
    return run_messages(turn, call, interrupted);
  }
  const bool agrees = this->agrees();
  GC3_CHECK(bind(call, messages_ == nullptr || !agrees));
  record_.count = call.count;
  record_.type = call.type;
  record_.op = call.op;
  GC3_CHECK(group().begin(record_));
  if (Status opened = open(interrupted); !opened.ok()) {
    group().finish();
    return opened;
  }
  Status status = enter();
  why_messages_.clear();
  if (status.ok() && agrees) {
    const Result<bool> serves = agree(interrupted);
    if (serves.ok() && !serves.value()) {
      leave();
      group().finish();
      return run_messages(turn, call, interrupted);
    }
    if (!serves.ok()) status = serves.error();
  } else if (messages_ != nullptr) {
    --calls_left_;
  }
  if (status.ok()) {
    // Before the signals that others may load, and not before messages, which multiply inputs by factors themselves.
    memory_.copy_in(rank_);
    machine_->enter();
    status = guarded([&] { return execute(interrupted); });
  }
  leave();
  if (!status.ok()) {
    Diagnostic reason = group().give_up(status.error());  // an earlier one, if there is one
    withdraw();
    return reason;
  }
  group().finish();
  return {};
}

Result<bool> ProcessJob::agree(const core::Interrupted& interrupted) {
  GC3_ASSIGN(const std::vector<Payload> said, group().exchange({own_[0], own_[1]}, interrupted));
  for (std::uint32_t r = 0; r < plan_.ranks.size(); ++r) {
    for (std::size_t b = 0; b < 2; ++b) {
      if (reached(r, b) == 0 || said[r][b] != core::Window::kNowhere) continue;
      why_messages_ = not_registered(b, r);
      return false;
    }
  }
  calls_left_ = kBetween - 1;
  return true;
}

Status ProcessJob::execute(const core::Interrupted& interrupted) {
  class Finder final : public Mover {
   public:
    Finder(ProcessJob& job, DataMover& mover) : job_(job), mover_(mover) {}
    Moved move(const Step& step, std::uint64_t call, Position& at) override {
      return job_.find_buffers(step) ? mover_.move(step, call, at) : Moved::nothing;
    }
    void settle() override { mover_.settle(); }

   private:
    ProcessJob& job_;
    DataMover& mover_;
  };
  for (Found& found : found_) found.now = false;
  problem_.reset();
  DataMover data(decoded_, shape_, buffers_);
  Finder mover(*this, data);
  group().bells().ring();  // for the signals of enter()
  core::Waiter waiter(group(), interrupted);
  waiter.post_nothing();
  const Machine::Note ends = [&](std::uint32_t, std::uint32_t) {
    memory_.copy_out(rank_);
    if (bound_.op != model::ReduceOp::avg) return;
    const interp::Call all{inputs_, outputs_, bound_.count, bound_.type, bound_.op};
    average_->apply(rank_, all, cpu::best_kernels().divide[static_cast<std::size_t>(bound_.type)]);
  };
  const std::function<void()> progress = [&] { group().bells().ring(); };
  machine_->begin(1, mover, {}, ends);
  while (!machine_->finished()) {
    const bool moved = machine_->sweep(progress);
    if (problem_) return *std::move(problem_);
    if (moved) {
      waiter.renew();
    } else if (!waiter.rest([&] { return machine_->awaited(); })) {
      return std::move(waiter.problem());
    }
  }
  return group().check();  // what was loaded was valid
}

Status ProcessJob::enter() const {
  Said& own = said(rank_);
  for (std::size_t b = 0; b < 2; ++b) std::atomic_ref(own.at[b]).store(own_[b], std::memory_order_relaxed);
  // Without messages, and between two calls that agree, this rank was to make copies.
  if (messages_ == nullptr || !agrees()) {
    for (std::size_t b = 0; b < 2; ++b) {
      if (own_[b] != core::Window::kNowhere) continue;
      return group().give_up(Diagnostic(ErrorCode::OutOfMemory, "a copy of the " + std::string(kBuffers[b]) +
                                                                    " of rank " + std::to_string(rank_) +
                                                                    " in the memory that the processes share"));
    }
  }
  if (!stores_) return {};
  // Either a rank that has failed sees that this one is inside, or this one sees that the group has been given up.
  std::atomic_ref(own.inside).store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return group().check();
}

void ProcessJob::leave() const {
  if (stores_) std::atomic_ref(said(rank_).inside).store(0, std::memory_order_release);
}

void ProcessJob::withdraw() const {
  if (!stores_) return;
  constexpr auto kLongest = std::chrono::seconds(1);  // much longer than a running rank stores without a look
  constexpr auto kPause = std::chrono::milliseconds(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // see enter()
  const auto until = std::chrono::steady_clock::now() + kLongest;
  for (std::uint32_t r = 0; r < plan_.ranks.size(); ++r) {
    while (std::atomic_ref(said(r).inside).load(std::memory_order_acquire) != 0 && group().runs(r) &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(kPause);
    }
  }
}

std::string ProcessJob::explain() const {
  const auto lock = members_->look();
  const std::string& name = decoded_.program.name;
  for (std::size_t b = 0; b < 2 && why_messages_.empty(); ++b) {
    if (copied_[b]) return name + " (on a copy in the last call: " + not_registered(b, rank_) + ")";
  }
  if (why_messages_.empty()) return name;
  return name + (messages_ != nullptr ? " (by messages in the last call: " : " (refused in the last call: ") +
         why_messages_ + ")";
}

}  // namespace gc3::direct
