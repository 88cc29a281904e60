#include "gc3/runtime/direct/machine.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <span>
#include <utility>

#include "gc3/ir/index.h"
#include "gc3/runtime/core/waiting/bells.h"

namespace gc3::direct {
namespace {

void give(std::uint64_t& counter) { std::atomic_ref(counter).fetch_add(1, std::memory_order_release); }
std::uint64_t seen(std::uint64_t& counter) { return std::atomic_ref(counter).load(std::memory_order_acquire); }

}  // namespace

Machine::Machine(const Decoded& program, Counters counters, std::uint32_t first, std::uint32_t last)
    : decoded_(program), program_(program.program), counters_(counters), first_(first), ranks_(last - first) {
  posted_.resize(program_.channels.size());
  entered_.resize(program_.threadblocks.size());
  for (std::uint32_t r = first; r < last; ++r) ranks_[r - first].tasks.resize(program_.ranks[r].tb_count);
  for (std::uint32_t c = 0; c < program_.channels.size(); ++c) {
    const ir::direct::Channel& channel = program_.channels[c];
    if (channel.port && channel.from >= first && channel.from < last) ranks_[channel.from - first].ports.push_back(c);
  }
}

void Machine::begin(std::uint32_t calls, Mover& mover, const Note& begins, const Note& ended) {
  mover_ = &mover;
  begins_ = begins;
  ended_ = ended;
  calls_ = calls;
  live_ = calls == 0 ? 0 : static_cast<std::uint32_t>(ranks_.size());
  for (auto& queue : posted_) queue.clear();
  for (std::uint32_t k = 0; k < ranks_.size() && calls != 0; ++k) {
    ranks_[k].call = 0;
    start(ranks_[k], first_ + k);
  }
}

void Machine::enter() {
  for (std::uint32_t r = first_; r < first_ + ranks_.size(); ++r) {
    for (std::uint32_t t = program_.ranks[r].first_tb, end = t + program_.ranks[r].tb_count; t < end; ++t) {
      if (entered_[t] != 0) continue;
      const ir::direct::Threadblock& tb = program_.threadblocks[t];
      for (const ir::direct::Step& step : program_.steps_of(tb)) {
        const auto channels = program_.objects_of(step);
        const auto has_proxy = [&](std::uint32_t c) { return program_.channels[c].port; };
        if (step.op != Op::signal || std::ranges::any_of(channels, has_proxy)) break;
        for (const std::uint32_t c : channels) give(counters_.signals(c));
        ++entered_[t];
      }
    }
  }
}

void Machine::start(Rank& rank, std::uint32_t number) {
  if (begins_) begins_(number, rank.call);
  ++counters_.calls(number);
  rank.live = 0;
  for (std::uint32_t t = 0; t < rank.tasks.size(); ++t) {
    const std::uint32_t tb = program_.ranks[number].first_tb + t;
    rank.tasks[t] = {tb, std::exchange(entered_[tb], 0), 0, 0, {}};
    if (program_.threadblocks[tb].step_count != rank.tasks[t].step) ++rank.live;
  }
}

// Ends the rank's call if it has nothing more to do.
bool Machine::end(Rank& rank, std::uint32_t number) {
  if (rank.live != 0 || std::ranges::any_of(rank.ports, [&](std::uint32_t c) { return !posted_[c].empty(); })) {
    return false;
  }
  mover_->settle();
  if (ended_) ended_(number, rank.call);
  if (++rank.call != calls_) {
    start(rank, number);
  } else {
    --live_;
  }
  return true;
}

bool Machine::sweep(const std::function<void()>& progress) {
  bool moved = false;
  const auto note = [&](bool advanced) {
    moved |= advanced;
    if (advanced) progress();
  };
  for (std::uint32_t k = 0; k < ranks_.size(); ++k) {
    Rank& rank = ranks_[k];
    if (rank.call == calls_) continue;
    for (std::size_t t = 0; t < rank.tasks.size(); ++t) {
      const bool advanced = advance(rank, first_ + k, rank.tasks[t]);
      note(advanced);
      // What the one before has moved is still in a cache.
      if (advanced && t != 0) note(advance(rank, first_ + k, rank.tasks[t - 1]));
    }
    note(end(rank, first_ + k));
  }
  // As late as possible: a program that does not wait for its asynchronous moves is wrong, and this shows it.
  for (std::uint32_t k = 0; k < ranks_.size() && !moved; ++k) note(run_posted(ranks_[k], first_ + k));
  return moved;
}

bool Machine::advance(Rank& rank, std::uint32_t number, Task& task) {
  const ir::direct::Threadblock& tb = program_.threadblocks[task.tb];
  const std::uint64_t call = counters_.calls(number);
  bool moved = false;
  while (task.step < tb.step_count) {
    const Step& step = decoded_.steps[tb.first_step + task.step];
    const Moved did = execute(step, call, task);
    moved |= did != Moved::nothing;
    if (did != Moved::all) return moved;
    task.object = 0;
    task.position = {};
    if (++task.step == tb.step_count) --rank.live;
    if (step.op == Op::signal || step.packets) return true;  // others may wait for it
  }
  return moved;
}

Moved Machine::execute(const Step& step, std::uint64_t call, Task& task) {
  if (step.op == Op::sync) return Moved::all;  // a threadblock is one thread
  if (step.op == Op::move) {
    if (step.channel == kNone) return mover_->move(step, call, task.position);
    posted_[step.channel].push_back({&step, false});
    return Moved::all;
  }
  const std::uint32_t begun = task.object;
  for (; task.object < step.sources; ++task.object, task.ticket = 0) {
    if (!object(step, program_.objects[step.first + task.object], task)) {
      return task.object != begun ? Moved::part : Moved::nothing;
    }
  }
  return Moved::all;
}

// Signals, waits and so on of one object; false: not yet.
bool Machine::object(const Step& step, std::uint32_t k, Task& task) {
  switch (step.op) {
    case Op::signal:
      if (program_.channels[k].port) {
        posted_[k].push_back({&step, true});
      } else {
        signal(k);
      }
      return true;
    case Op::wait:
      if (task.ticket == 0)
        task.ticket = std::atomic_ref(counters_.waits(k)).fetch_add(1, std::memory_order_relaxed) + 1;
      return seen(counters_.signals(k)) >= task.ticket;
    case Op::release:
      give(counters_.released(k));
      return true;
    case Op::acquire: {
      std::uint64_t now = seen(counters_.released(k));
      if (static_cast<std::int64_t>(now + program_.semaphores[k].initial) <= 0) return false;
      return std::atomic_ref(counters_.released(k)).compare_exchange_strong(now, now - 1, std::memory_order_acquire);
    }
    case Op::barrier:
      if (task.ticket == 0) {
        const std::uint64_t all = program_.barriers[k].threadblocks;
        const std::uint64_t before = std::atomic_ref(counters_.arrivals(k)).fetch_add(1, std::memory_order_acq_rel);
        task.ticket = (before / all + 1) * all;
      }
      return seen(counters_.arrivals(k)) >= task.ticket;
    case Op::flush:
      return posted_[k].empty();
    case Op::move:
    case Op::sync:
      break;
  }
  return true;
}

// With release, relaxed or not: where a program relaxes the signals at its entry, it relies on the begin of a call,
// which here is no more than this, to make visible what the rank has stored before.
void Machine::signal(std::uint32_t channel) {
  mover_->settle();
  give(counters_.signals(channel));
}

// One of each channel.
bool Machine::run_posted(const Rank& rank, std::uint32_t number) {
  bool moved = false;
  for (const std::uint32_t c : rank.ports) {
    if (posted_[c].empty()) continue;
    const Posted next = posted_[c].front();
    Position position;
    if (next.signal) {
      signal(c);
    } else if (mover_->move(*next.step, counters_.calls(number), position) != Moved::all) {
      continue;  // a packet has not come: nobody has proven the program
    }
    posted_[c].pop_front();
    moved = true;
  }
  return moved;
}

std::uint32_t Machine::awaited() const {
  std::uint32_t ranks = 0;
  bool goes_on = false;  // whether some threadblock has more to do than to wait
  for (const Rank& rank : ranks_) {
    for (const Task& task : rank.tasks) {
      const ir::direct::Threadblock& tb = program_.threadblocks[task.tb];
      const std::span<const Step> left =
          std::span(decoded_.steps).subspan(tb.first_step, tb.step_count).subspan(task.step);
      if (left.empty()) continue;
      if (left.front().op != Op::wait) return core::Bells::kAnybody;
      for (std::uint32_t k = task.object; k < left.front().sources; ++k) {
        const std::uint32_t c = program_.objects[left.front().first + k];
        const std::uint64_t ticket = k == task.object ? task.ticket : seen(counters_.waits(c)) + 1;
        if (seen(counters_.signals(c)) < ticket) ranks |= core::Bells::bit(program_.channels[c].from);
      }
      goes_on |= std::ranges::any_of(left, [](const Step& step) { return step.op != Op::wait && step.op != Op::sync; });
    }
  }
  if (ranks == 0) return core::Bells::kAnybody;
  return goes_on && std::popcount(ranks) > 1 ? ranks | core::Bells::kAny : ranks;
}

std::string Machine::awaited(const Step& step, const Task& task) const {
  if (step.op == Op::move) {
    return "for packets of chunk " + std::to_string(task.position.chunk + 1) + " of " + std::to_string(step.count);
  }
  const std::uint32_t k = program_.objects[step.first + task.object];
  const std::string number = std::to_string(k);
  switch (step.op) {
    case Op::wait: {
      const std::uint64_t missing = task.ticket - seen(counters_.signals(k));
      return "for rank " + std::to_string(program_.channels[k].from) + " to signal on channel " + number +
             (missing == 1 ? "" : " " + std::to_string(missing) + " times");
    }
    case Op::acquire:
      return "for semaphore " + number;
    case Op::barrier:
      return "for " + std::to_string(task.ticket - seen(counters_.arrivals(k))) + " of the " +
             std::to_string(program_.barriers[k].threadblocks) + " threadblocks of barrier " + number;
    default:
      return "for the asynchronous moves of channel " + number;
  }
}

void Machine::report(Diagnostic& diagnostic) const {
  for (std::uint32_t k = 0; k < ranks_.size(); ++k) {
    for (std::uint32_t t = 0; t < ranks_[k].tasks.size(); ++t) {
      const Task& task = ranks_[k].tasks[t];
      const ir::direct::Threadblock& tb = program_.threadblocks[task.tb];
      if (ranks_[k].call == calls_ || task.step == tb.step_count) continue;
      const Step& step = decoded_.steps[tb.first_step + task.step];
      const bool waits = step.op == Op::move ? step.packets : step.op != Op::sync && task.object < step.sources;
      diagnostic.note(ir::step_name(first_ + k, t, task.step) + " (" + std::string(info(step.op).name) + ") waits " +
                      (waits ? awaited(step, task) : "for its turn"));
    }
  }
}

}  // namespace gc3::direct
