#include "gc3/verify/schedule.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "gc3/base/errors/verifier.h"
#include "gc3/base/interrupt.h"

namespace gc3::verify {
namespace {

using ir::Instruction;
using ir::OpcodeInfo;

constexpr std::uint32_t kUnlimited = kNone;  // as many slots as messages

enum class WaitFor : std::uint8_t { nothing, dependency, message, slot };

// The cause of a threadblock's wait. `index`: position in the step's dependencies; unused by the other kinds.
struct Wait {
  WaitFor kind = WaitFor::nothing;
  std::uint32_t index = 0;
};

class Executor {
 public:
  Executor(const ProgramIndex& index, const Connections& connections, std::uint32_t slots)
      : index_(index),
        program_(index.program()),
        connections_(connections),
        slots_(slots),
        done_(program_.threadblocks.size()),
        waits_(program_.threadblocks.size()),
        first_waiter_(program_.threadblocks.size(), kNone),
        next_waiter_(program_.threadblocks.size(), kNone),
        sent_(connections.all.size()),
        received_(connections.all.size()) {}

  // True if every threadblock finishes. `schedule`, if given, receives the order.
  bool run(Schedule* schedule) {
    const auto tbs = static_cast<std::uint32_t>(program_.threadblocks.size());
    ready_.reserve(tbs);
    for (std::uint32_t t = tbs; t-- > 0;) ready_.push_back(t);
    std::uint64_t finished = 0;
    Breath breathe;
    while (!ready_.empty()) {
      breathe();
      const std::uint32_t tb = ready_.back();
      ready_.pop_back();
      const std::uint32_t first = done_[tb];
      advance(tb);
      if (schedule != nullptr && done_[tb] > first) schedule->push_back({tb, first, done_[tb]});
      if (done_[tb] == program_.threadblocks[tb].instruction_count) ++finished;
      wake_dependents(tb);
    }
    return finished == tbs;
  }

  std::uint32_t first_stuck() const {
    std::uint32_t t = 0;
    while (waits_[t].kind == WaitFor::nothing) ++t;
    return t;
  }
  Step current(std::uint32_t tb) const { return {tb, done_[tb]}; }
  WaitFor reason(std::uint32_t tb) const { return waits_[tb].kind; }

  // The step whose completion would end the wait of `tb`.
  Step awaited(std::uint32_t tb) const {
    switch (waits_[tb].kind) {
      case WaitFor::dependency:
        return dependency(tb);
      case WaitFor::message: {
        const Connection& c = connections_.all[connections_.receiving[tb]];
        return next(c.send_tb, &OpcodeInfo::sends);
      }
      case WaitFor::slot: {
        const Connection& c = connections_.all[connections_.sending[tb]];
        return next(c.recv_tb, &OpcodeInfo::receives);
      }
      case WaitFor::nothing:
        break;
    }
    return current(tb);
  }

 private:
  Step dependency(std::uint32_t tb) const {
    const Instruction& i = index_.instruction(current(tb));
    return index_.awaited(index_.rank_of(tb), program_.dependencies[i.dep_begin + waits_[tb].index]);
  }
  Step next(std::uint32_t tb, bool OpcodeInfo::* role) const {
    Step s = current(tb);
    while (!(ir::info(index_.instruction(s).opcode).*role)) ++s.step;
    return s;
  }

  Wait blocker(std::uint32_t tb, const Instruction& i, const OpcodeInfo& op) const {
    const std::uint32_t first_tb = program_.ranks[index_.rank_of(tb)].first_tb;
    for (std::uint32_t d = 0; d < i.dep_count; ++d) {
      const ir::Dependency& dep = program_.dependencies[i.dep_begin + d];
      if (done_[first_tb + dep.tb] <= dep.step) return {WaitFor::dependency, d};
    }
    if (op.receives) {
      const std::uint32_t c = connections_.receiving[tb];
      if (sent_[c] == received_[c]) return {WaitFor::message};
    }
    if (op.sends) {
      const std::uint32_t c = connections_.sending[tb];
      if (sent_[c] - received_[c] >= slots_) return {WaitFor::slot};
    }
    return {};
  }

  void advance(std::uint32_t tb) {
    const auto steps = program_.steps(program_.threadblocks[tb]);
    std::uint32_t& step = done_[tb];
    Breath breathe;
    for (; step < steps.size(); ++step) {
      breathe();
      const Instruction& i = steps[step];
      const OpcodeInfo& op = ir::info(i.opcode);
      waits_[tb] = blocker(tb, i, op);
      if (waits_[tb].kind == WaitFor::dependency) {
        const std::uint32_t other = dependency(tb).tb;
        next_waiter_[tb] = first_waiter_[other];
        first_waiter_[other] = tb;
      }
      if (waits_[tb].kind != WaitFor::nothing) return;
      if (op.receives) {
        const std::uint32_t c = connections_.receiving[tb];
        ++received_[c];
        wake(connections_.all[c].send_tb, WaitFor::slot);
      }
      if (op.sends) {
        const std::uint32_t c = connections_.sending[tb];
        ++sent_[c];
        wake(connections_.all[c].recv_tb, WaitFor::message);
      }
    }
  }

  void wake(std::uint32_t tb, WaitFor kind) {
    if (waits_[tb].kind != kind) return;
    waits_[tb] = {};
    ready_.push_back(tb);
  }

  void wake_dependents(std::uint32_t tb) {
    std::uint32_t waiter = first_waiter_[tb];
    first_waiter_[tb] = kNone;
    while (waiter != kNone) {
      const std::uint32_t after = next_waiter_[waiter];
      if (dependency(waiter).step < done_[tb]) {
        wake(waiter, WaitFor::dependency);
      } else {
        next_waiter_[waiter] = first_waiter_[tb];
        first_waiter_[tb] = waiter;
      }
      waiter = after;
    }
  }

  const ProgramIndex& index_;
  const ir::Program& program_;
  const Connections& connections_;
  std::uint32_t slots_;
  std::vector<std::uint32_t> done_;          // steps finished, per threadblock
  std::vector<Wait> waits_;                  // per threadblock; none: ready, running or finished
  std::vector<std::uint32_t> first_waiter_;  // lists of the threadblocks that wait for a step of this one
  std::vector<std::uint32_t> next_waiter_;
  std::vector<std::uint32_t> sent_;  // per connection
  std::vector<std::uint32_t> received_;
  std::vector<std::uint32_t> ready_;
};

// Every stuck threadblock waits for a step of another stuck one, so following the waits leads to a cycle.
std::vector<std::uint32_t> find_cycle(const Executor& stuck) {
  std::vector<std::uint32_t> path;
  std::vector<bool> seen;
  std::uint32_t tb = stuck.first_stuck();
  while (tb >= seen.size() || !seen[tb]) {
    if (tb >= seen.size()) seen.resize(tb + 1);
    seen[tb] = true;
    path.push_back(tb);
    tb = stuck.awaited(tb).tb;
  }
  path.erase(path.begin(), std::ranges::find(path, tb));
  return path;
}

void explain_cycle(const ProgramIndex& index, const Executor& stuck, Diagnostic& problem) {
  constexpr std::size_t kShown = 12;
  const std::vector<std::uint32_t> cycle = find_cycle(stuck);
  problem.message += std::to_string(cycle.size()) + (cycle.size() == 1 ? " threadblock waits" : " threadblocks wait") +
                     " in a cycle, from " + index.describe(stuck.current(cycle.front())) + " on";
  for (std::size_t k = 0; k < std::min(cycle.size(), kShown); ++k) {
    const std::uint32_t tb = cycle[k];
    const char* what = stuck.reason(tb) == WaitFor::dependency ? " waits for "
                       : stuck.reason(tb) == WaitFor::message  ? " waits for the message of "
                                                               : " waits for a slot to be freed by ";
    problem.note(index.describe(stuck.current(tb)) + what + index.describe(stuck.awaited(tb)));
  }
  if (cycle.size() > kShown) problem.note("and " + std::to_string(cycle.size() - kShown) + " more");
}

// More slots never cause a deadlock, so a binary search finds the smallest sufficient number.
std::uint32_t smallest_sufficient(const ProgramIndex& index, const Connections& connections, std::uint32_t too_few) {
  std::uint32_t low = too_few + 1;
  std::uint32_t high = low;
  for (const Connection& c : connections.all) high = std::max(high, c.messages);
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (Executor(index, connections, middle).run(nullptr)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace

Schedule find_schedule(const ProgramIndex& index, const Connections& connections, std::uint32_t slots,
                       Findings& findings) {
  Schedule schedule;
  Executor limited(index, connections, slots);
  if (limited.run(&schedule)) return schedule;
  schedule.clear();
  Executor unlimited(index, connections, kUnlimited);
  if (!unlimited.run(&schedule)) {
    Diagnostic problem(ErrorCode::OrderDeadlock, "");
    explain_cycle(index, unlimited, problem);
    findings.add(std::move(problem));
    return {};
  }
  const auto plural = [](std::uint32_t n) { return std::to_string(n) + (n == 1 ? " slot" : " slots"); };
  Diagnostic problem(ErrorCode::SlotDeadlock, "with " + plural(slots) + " per connection ");
  explain_cycle(index, limited, problem);
  problem.note("the smallest number that works is " + std::to_string(smallest_sufficient(index, connections, slots)));
  findings.add(std::move(problem));
  return schedule;
}

}  // namespace gc3::verify
