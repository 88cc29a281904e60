#include "gc3/runtime/direct/process_job.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
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

}  // namespace

ProcessJob::ProcessJob(Decoded decoded, const cpu::Communicator& comm, std::shared_ptr<cpu::ProcessProgram> messages)
    : decoded_(std::move(decoded)),
      plan_(plan_of(decoded_)),
      rank_(comm.rank()),
      members_(comm.members()),
      messages_(std::move(messages)),
      uses_(plan_.ranks.size()),
      memory_(plan_, rank_, 1),
      inputs_(plan_.ranks.size()),
      outputs_(plan_.ranks.size()),
      factors_(plan_.ranks.size()),
      scratch_at_(plan_.ranks.size()),
      buffers_(plan_.ranks.size()) {}

Result<std::shared_ptr<ProcessJob>> ProcessJob::create(const Program& program, const cpu::Communicator& comm,
                                                       std::shared_ptr<cpu::ProcessProgram> messages) {
  if (program.collective.ranks() != comm.size()) {
    return Diagnostic(ErrorCode::BadArgument, "a program of " + std::to_string(program.collective.ranks()) +
                                                  " ranks in a communicator of " + std::to_string(comm.size()));
  }
  GC3_ASSIGN(Decoded decoded, Decoded::create(program));
  std::shared_ptr<ProcessJob> made(new ProcessJob(std::move(decoded), comm, std::move(messages)));
  GC3_ASSIGN(made->plan_.moves_between_classes, moves_between_classes(made->decoded_));
  made->find_uses();
  made->record_.collective = program.collective.kind();
  made->record_.in_place = program.collective.in_place();
  made->record_.root = program.collective.root();
  made->record_.program = fingerprint_of(program, made->messages_.get(), comm.key());
  return made;
}

void ProcessJob::find_uses() {
  const auto use = [&](std::uint32_t by, std::span<const Place> places, Use how) {
    for (const Place& place : places) {
      if (place.rank == by || place.buffer == Buffer::scratch) continue;
      Use& most = uses_[place.rank][place.buffer == Buffer::output ? 1 : 0];
      most = std::max(most, how);
      stores_ |= how == Use::stores;
    }
  };
  for (std::uint32_t r = 0; r < uses_.size(); ++r) {
    for (const ir::direct::Threadblock& tb : decoded_.program.tbs(r)) {
      for (const Step& step : std::span(decoded_.steps).subspan(tb.first_step, tb.step_count)) {
        if (step.op != Op::move) continue;
        use(r, decoded_.sources(step), Use::loads);
        use(r, decoded_.targets(step), Use::stores);
      }
    }
  }
}

std::uint64_t ProcessJob::reached(std::uint32_t rank, std::size_t buffer) const {
  if (uses_[rank][buffer] == Use::nothing) return 0;
  const interp::PlanRank& has = plan_.ranks[rank];
  return block_bytes_ * (buffer == 0 ? has.input_blocks : has.output_blocks);
}

Status ProcessJob::bind(const cpu::RankCall& call) {
  if (is_bound_ && call == bound_) return {};
  is_bound_ = false;
  said_.clear();  // this rank's buffers may be others
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
  GC3_CHECK(memory_.bind(all, run));
  block_bytes_ = (plan_.pads(call.count) ? run.chunk_elems * chunks : call.count) * shape_.elem_bytes;
  const interp::Region* regions = memory_.regions(rank_);
  for (std::size_t b = 0; b < 2; ++b) {
    own_[b] = reached(rank_, b) == 0 ? 0 : job->offset_of(regions[b].base);
    shape_.streams |= regions[b].streams != 0;
  }
  if (call.op == model::ReduceOp::avg && !average_) average_.emplace(plan_);
  bound_ = call;
  is_bound_ = true;
  return {};
}

Status ProcessJob::open(const core::Interrupted& interrupted) {
  const Program& program = decoded_.program;
  const std::size_t bytes = Counters::bytes(program);
  if (counters_.data() == nullptr) {
    const std::size_t all = bytes + plan_.ranks.size() * sizeof(interp::Counter);
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
    stride_ = stride;
    said_.clear();
  }
  shape_.stride = stride_;
  return {};
}

Status ProcessJob::find_buffers(const std::vector<Payload>& said) {
  const core::Job& job = *group().job();
  const interp::Region* regions = memory_.regions(rank_);
  for (std::uint32_t r = 0; r < plan_.ranks.size(); ++r) {
    std::array<std::uint8_t*, 2> at = {regions[0].base, regions[1].base};
    for (std::size_t b = 0; b < 2 && r != rank_; ++b) {
      const std::uint64_t bytes = reached(r, b);
      at[b] = bytes == 0 ? nullptr : job.place(said[r][b], bytes);
      if (bytes == 0 || at[b] != nullptr) continue;
      return group().give_up(Diagnostic(
          ErrorCode::SystemRefused, "rank " + std::to_string(rank_) + " cannot reach the " + kBuffers[b] + " of rank " +
                                        std::to_string(r) + ": the memory that the processes share has no " +
                                        std::to_string(bytes) + " bytes at offset " + std::to_string(said[r][b])));
    }
    std::uint8_t* const scratch = scratch_.data() == nullptr ? nullptr : scratch_.data() + scratch_at_[r];
    buffers_[r] = {at[0], at[1], scratch};
  }
  said_ = said;
  return {};
}

Status ProcessJob::run(const cpu::RankCall& call, const core::Interrupted& interrupted) {
  GC3_ASSIGN(const auto turn, members_->enter(call.timeout_s));
  return run(turn, call, interrupted);
}

Result<std::vector<double>> ProcessJob::times(const cpu::RankCall& call, std::uint32_t warmup, std::uint32_t iterations,
                                              const core::Interrupted& interrupted) {
  GC3_ASSIGN(const auto turn, members_->enter());
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
  GC3_CHECK(bind(call));
  record_.count = call.count;
  record_.type = call.type;
  record_.op = call.op;
  GC3_CHECK(group().begin(record_));
  if (Status opened = open(interrupted); !opened.ok()) {
    group().finish();
    return opened;
  }
  enter(true);
  memory_.copy_in(rank_);  // before the signals that others may load
  machine_->enter();
  // After it no rank is in the call before this one, and each has bound its buffers.
  Result<std::vector<Payload>> said = group().exchange(own_, interrupted);
  why_messages_.clear();
  for (std::uint32_t r = 0; said.ok() && r < plan_.ranks.size(); ++r) {
    for (std::size_t b = 0; b < 2 && why_messages_.empty(); ++b) {
      if (reached(r, b) == 0 || said.value()[r][b] != core::Window::kNowhere) continue;
      why_messages_ = "the " + std::string(kBuffers[b]) + " of rank " + std::to_string(r) + " is not registered memory";
    }
  }
  if (said.ok() && !why_messages_.empty()) {
    enter(false);
    group().finish();
    return run_messages(turn, call, interrupted);
  }
  Status status = said.ok() ? Status() : Status(std::move(said.error()));
  if (status.ok() && said.value() != said_) status = find_buffers(said.value());
  if (status.ok()) status = execute(interrupted);
  enter(false);
  if (!status.ok()) {
    withdraw();
    return status;
  }
  group().finish();
  return {};
}

Status ProcessJob::execute(const core::Interrupted& interrupted) {
  DataMover mover(decoded_, shape_, buffers_);
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
    if (machine_->sweep(progress)) {
      waiter.renew();
    } else if (!waiter.rest([&] { return machine_->awaited(); })) {
      return std::move(waiter.problem());
    }
  }
  return group().check();  // what was loaded was valid
}

void ProcessJob::enter(bool inside) const {
  if (!stores_) return;
  auto* const words = reinterpret_cast<interp::Counter*>(counters_.data() + Counters::bytes(decoded_.program));
  std::atomic_ref(words[rank_].value).store(inside ? 1 : 0, std::memory_order_release);
}

void ProcessJob::withdraw() const {
  if (!stores_) return;
  constexpr auto kLongest = std::chrono::seconds(1);  // much longer than a running rank stores without a look
  constexpr auto kPause = std::chrono::milliseconds(1);
  auto* const words = reinterpret_cast<interp::Counter*>(counters_.data() + Counters::bytes(decoded_.program));
  const auto until = std::chrono::steady_clock::now() + kLongest;
  for (std::uint32_t r = 0; r < plan_.ranks.size(); ++r) {
    while (std::atomic_ref(words[r].value).load(std::memory_order_acquire) != 0 && group().runs(r) &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(kPause);
    }
  }
}

std::string ProcessJob::explain() const {
  const auto lock = members_->look();
  const std::string& name = decoded_.program.name;
  if (why_messages_.empty()) return name;
  return name + (messages_ != nullptr ? " (by messages in the last call: " : " (refused in the last call: ") +
         why_messages_ + ")";
}

}  // namespace gc3::direct
