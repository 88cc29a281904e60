// How a program's threadblocks take turns in a process, and what a rank does while it waits.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/waiter.h"
#include "gc3/runtime/cpu/process_program.h"

namespace gc3::cpu {

template <class R, class Block>
Status ProcessProgram::execute(const R& run, std::uint32_t budget, Block& block, Advance<Block, R> advance,
                               const core::Interrupted& interrupted) {
  constexpr bool kBetweenHosts = std::is_base_of_v<NetworkBlock, Block>;
  core::Group& group = this->group();
  const bool notes_posts = !kBetweenHosts && plan_.protocol == model::Protocol::Simple;
  std::size_t left = live_.size();
  NetworkWait network(network_, tasks_, live_, left);  // looks at nothing within a host
  core::Waiter waiter(group, interrupted, nullptr, spins_, kBetweenHosts ? &network : nullptr);
  if constexpr (!kBetweenHosts) waiter.post_nothing();
  if (is_small_) waiter.is_of_small_call();
  for (interp::Task& task : tasks_) {
    task.tile = 0;
    task.step = 0;
    task.offset = 0;
  }
  std::iota(live_.begin(), live_.end(), 0U);
  while (left != 0) {
    bool moved = false;
    for (std::size_t i = 0; i < left;) {
      const interp::Outcome outcome = advance(block, run, tasks_[live_[i]], budget);
      moved |= outcome != interp::Outcome::blocked;
      if (outcome == interp::Outcome::finished) {
        live_[i] = live_[--left];
      } else {
        ++i;
      }
    }
    if constexpr (kBetweenHosts) moved |= block.progress();  // after the steps have said where their messages go
    if (computing_.problem()) return group.give_up(*computing_.problem());
    const bool helped = !moved && help(run, block);
    const bool posted = block.take_posted() || helped || (moved && !notes_posts);
    if (posted || moved) {
      posted ? group.bells().ring() : group.bells().ring_for_room();
      waiter.renew();
    } else if (block.fault()) {
      return group.give_up(unreadable(*block.fault()));
    } else if (std::optional<Diagnostic> lost = kBetweenHosts ? network.problem() : std::nullopt) {
      return group.give_up(*lost);
    } else if (!waiter.rest([&] { return block.has_lent() ? core::Bells::kAnybody : awaited(run, left); })) {
      return std::move(waiter.problem());
    }
  }
  CpuBlock::settle();
  if constexpr (kBetweenHosts) {
    while (!block.idle()) {
      if (block.progress()) {
        waiter.renew();
      } else if (!waiter.rest([] { return core::Bells::kAnybody; })) {
        return std::move(waiter.problem());
      }
    }
  }
  if (block.has_lent()) GC3_CHECK(get_back(loans_.buffers, run, &block, interrupted));
  return block.has_borrowed() ? group.check() : Status();
}

Status ProcessProgram::execute_collective(const Kernel& kernel, Recorder* recorder,
                                          const core::Interrupted& interrupted) {
  if (network_.links != nullptr) {
    if (recorder != nullptr) {
      RecordingBlock<NetworkBlock> block(*recorder, network_, kernel, access_, stage_, loans_);
      return execute<interp::Run, NetworkBlock>(run_, budget_, block, recording_advance_network(), interrupted);
    }
    NetworkBlock block(network_, kernel, access_, stage_, loans_);
    const Advance<NetworkBlock> advance = advance_as<Lending, NetworkBlock, NetworkBlock, interp::Run>;
    return execute(run_, budget_, block, advance, interrupted);
  }
  if (recorder != nullptr) {
    RecordingBlock<LendingBlock> block(*recorder, kernel, access_, stage_, loans_);
    return execute<interp::Run, LendingBlock>(run_, budget_, block, recording_advance_lending(plan_.protocol),
                                              interrupted);
  }
  LendingBlock block(kernel, access_, stage_, loans_);
  return execute(run_, budget_, block, advance_for<LendingBlock, Lending>(plan_.protocol), interrupted);
}

Status ProcessProgram::execute_v(const Kernel& kernel, const core::Interrupted& interrupted) {
  if (network_.links != nullptr) {
    NetworkBlock block(network_, kernel, access_, stage_, loans_);
    block.computes_with(computing_);
    const Advance<NetworkBlock, interp::VRun> advance = advance_as<Lending, NetworkBlock, NetworkBlock, interp::VRun>;
    if (plan_.collective.has_tensors()) meanwhile_ = {[&] { return accompany(block, advance); }, block.descriptor()};
    Status status = execute(v_run_, v_budget_, block, advance, interrupted);
    meanwhile_ = {};
    return status;
  }
  LendingBlock block(kernel, access_, stage_, loans_);
  block.computes_with(computing_);
  const auto advance = advance_for<LendingBlock, Lending, LendingBlock, interp::VRun>(plan_.protocol);
  return execute(v_run_, v_budget_, block, advance, interrupted);
}

int ProcessProgram::accompany(NetworkBlock& block, Advance<NetworkBlock, interp::VRun> advance) {
  // Ranks of this host ring no descriptor. The network does.
  constexpr int kSleep = 1;
  constexpr int kLongSleep = 10;
  bool moved = block.progress();
  bool awaits_here = block.has_lent();
  for (interp::Task& task : tasks_) {
    if (task.tile == v_run_.tiles) continue;
    if (task.step_count != 0 && task.steps[task.step].opcode == interp::Op::apply) continue;
    moved |= advance(block, v_run_, task, v_budget_) != interp::Outcome::blocked;
    awaits_here |= task.waiting == interp::Waiting::input && network_.inlets[task.tb] == nullptr;
    awaits_here |= task.waiting == interp::Waiting::credit && network_.outlets[task.tb] == nullptr;
  }
  if (!moved) moved = help(v_run_, block);
  CpuBlock::settle();
  if (block.take_posted() || moved) group().bells().ring();  // others of this host may sleep until then
  // An error that has come up is one of the call, which sees it after the operation.
  if (moved || !block.arm()) return 0;
  return awaits_here ? kSleep : kLongSleep;
}

std::uint32_t ProcessProgram::awaited(const interp::Run& run, std::size_t left) const {
  const interp::PlanThreadblock* const tbs = &plan_.threadblocks[plan_.ranks[rank_].first_tb];
  const auto awaited_by = [&](const interp::Task& task) {
    if (task.tile == run.tiles) return std::uint32_t{0};
    if (task.waiting == interp::Waiting::input) return core::Bells::bit(tbs[task.tb].recv_peer);
    return task.waiting == interp::Waiting::credit ? core::Bells::bit(tbs[task.tb].send_peer) | core::Bells::kRoom : 0;
  };
  // The same, and in small calls whose message it takes as soon as other tasks let it, unless that has come.
  const bool looks_ahead = is_small_ && plan_.protocol == model::Protocol::Simple;
  const auto needed_by = [&](const interp::Task& task) {
    if (task.tile == run.tiles || task.waiting != interp::Waiting::dependency) return awaited_by(task);
    const bool receives = looks_ahead && interp::does_of(task.steps[task.step].opcode).receives;
    if (!receives || (network_.links != nullptr && network_.inlets[task.tb] != nullptr)) return std::uint32_t{0};
    return Lending::has_come(run, task) ? 0 : core::Bells::bit(tbs[task.tb].recv_peer);
  };
  std::uint32_t ranks = 0;
  for (std::size_t i = 0; i < left; ++i) ranks |= awaited_by(tasks_[live_[i]]);
  if (ranks == 0) return core::Bells::kAnybody;
  // Between tiles slots are given back, for which others may wait. What has come can be computed with.
  if (run.tiles != 1 || plan_.collective.has_tensors()) return ranks | core::Bells::kAny;
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < left; ++i) all |= needed_by(tasks_[live_[i]]);
  // What a task needs before it sends again: its own message, and those of the tasks that it waits for until then.
  for (std::size_t i = 0; i < left; ++i) {
    const interp::Task& task = tasks_[live_[i]];
    std::uint32_t needed = needed_by(task);
    bool sends = false;
    for (std::uint32_t s = task.step; s < task.step_count && !sends; ++s) {
      const interp::Step& step = task.steps[s];
      for (std::uint32_t w = step.wait_begin; w < step.wait_begin + step.wait_count; ++w) {
        const interp::Wait& wait = task.waits[w];
        const interp::Task& other = tasks_[wait.tb];
        if (other.tile != run.tiles && other.step < wait.steps) needed |= needed_by(other);
      }
      sends = interp::does_of(step.opcode).sends;
    }
    if (sends && needed != all) return ranks | core::Bells::kAny;
  }
  return all;
}

Diagnostic ProcessProgram::unreadable(const LendingBlock::Fault& fault) const {
  return Diagnostic(ErrorCode::SystemRefused,
                    "rank " + std::to_string(rank_) + " (process " + std::to_string(getpid()) +
                        ") cannot read the data of rank " + std::to_string(fault.sender) + " (process " +
                        std::to_string(access_.processes[fault.sender]) + "): " + std::strerror(fault.error));
}

bool ProcessProgram::help(const interp::Run& run, LendingBlock& block) {
  if (!block.has_lent()) return false;
  bool copied = false;
  if (block.wants_copies()) {
    for (const interp::Task& task : tasks_) copied |= block.copy_where_asked(run, task);
  }
  if (copied || !access_.helps) return copied;
  const interp::PlanRank& own = plan_.ranks[rank_];
  const std::uint64_t before = halves_written_;
  for (const interp::Task& task : tasks_) {
    if (block.help(run, task, plan_.threadblocks[own.first_tb + task.tb].send_peer)) ++halves_written_;
  }
  return halves_written_ != before;
}

Status ProcessProgram::get_back(std::vector<std::uint64_t>& loans, const interp::Run& run, LendingBlock* block,
                                const core::Interrupted& interrupted) {
  core::Waiter waiter(group(), interrupted);
  waiter.post_nothing();
  for (std::size_t t = 0; t < loans.size(); ++t) {
    while (loans[t] != 0 && CpuBlock::await(tasks_[t].send.head, loans[t]) < loans[t]) {
      if (block != nullptr && (help(run, *block) || block->take_posted())) {
        group().bells().ring();
        waiter.renew();
      } else if (!waiter.rest([] { return core::Bells::kAnybody; })) {
        return std::move(waiter.problem());
      }
    }
    waiter.renew();
    loans[t] = 0;
  }
  return {};
}

Status ProcessProgram::get_scratch_back(const core::Interrupted& interrupted) {
  if (std::ranges::all_of(loans_.scratch, [](std::uint64_t loan) { return loan == 0; })) return {};
  if (!group().job()->here()) return {};  // in a fork, scratch belongs to the parent
  GC3_CHECK(group().check());
  return get_back(loans_.scratch, run_, nullptr, interrupted);
}

Diagnostic ProcessProgram::withdraw(const Diagnostic& problem) const {
  Diagnostic reason = group().give_up(problem);  // an earlier one, if there is one
  if (network_.links != nullptr) network_.links->transport().abandon();
  // Much longer than a system call of a running rank takes.
  constexpr auto kLongest = std::chrono::seconds(1);
  constexpr auto kPause = std::chrono::milliseconds(1);
  for (const interp::Task& task : tasks_) {
    if (plan_.protocol != model::Protocol::Simple || task.recv.arrivals == nullptr) continue;
    Offer& offer = offers_of(task.recv.arrivals, geometry_.slots)[task.recv.slot];
    const auto until = std::chrono::steady_clock::now() + kLongest;
    bool runs = true;
    while (runs && offer.revoke(task.recv.step) && std::chrono::steady_clock::now() < until) {
      runs = group().runs(access_.senders[task.tb]);
      std::this_thread::sleep_for(kPause);  // also after the rank was stopped: one of its threads may still run
    }
  }
  return reason;
}

}  // namespace gc3::cpu
