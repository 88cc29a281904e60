#include "gc3/sim/alpha_beta.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/simulator.h"
#include "gc3/base/interrupt.h"
#include "gc3/sim/deadlock.h"

namespace gc3::sim {
namespace {

constexpr double kRounding = 1e-9;  // rates are rounded: a little less than a whole multiple is that multiple

// Assigns a step to every message: one after the latest message that its sender had to wait for, or that its
// threadblock sent.
class Leveler {
 public:
  Leveler(const Simulator& simulator, bool split, const std::vector<std::uint32_t>* step_of = nullptr)
      : program_(simulator.program()),
        wiring_(simulator.wiring()),
        split_(split),
        step_of_(step_of),
        after_(program_.instructions.size()),
        position_(program_.threadblocks.size()),
        awaited_(program_.threadblocks.size(), kNone),
        known_(program_.threadblocks.size()),
        sent_(wiring_.wires.size()),
        taken_(wiring_.wires.size()) {}

  // Calls message(wire, step from 1, chunks, the instruction that sends) for every message.
  template <class Message>
  Status run(const Message& message) {
    std::vector<std::uint32_t> todo;
    for (std::uint32_t t = static_cast<std::uint32_t>(position_.size()); t-- != 0;) todo.push_back(t);
    std::vector<std::vector<std::uint32_t>> waiters(position_.size());  // by the threadblock they wait for
    std::size_t finished = 0;
    Breath breathe;
    while (!todo.empty()) {
      breathe();
      const std::uint32_t t = todo.back();
      todo.pop_back();
      const auto steps = program_.steps(program_.threadblocks[t]);
      const std::uint32_t before = position_[t];
      awaited_[t] = kNone;
      while (position_[t] != steps.size() && (awaited_[t] = advance(t, steps[position_[t]], message)) == kNone) {
        ++position_[t];
      }
      if (awaited_[t] != kNone) {
        waiters[awaited_[t]].push_back(t);
      } else {
        ++finished;
      }
      if (position_[t] != before) {
        todo.insert(todo.end(), waiters[t].begin(), waiters[t].end());
        waiters[t].clear();
      }
    }
    return finished == position_.size() ? Status() : Status(deadlock(position_.size() - finished));
  }

  // Whether all data that is sent in the given steps has arrived by then.
  bool kept() const { return kept_; }

 private:
  // Executes one instruction; returns the threadblock that it still waits for.
  template <class Message>
  std::uint32_t advance(std::uint32_t t, const ir::Instruction& i, const Message& message) {
    const std::uint32_t rank = wiring_.rank_of[t];
    const ir::OpcodeInfo& does = ir::info(i.opcode);
    std::uint64_t level = known_[t];
    for (const ir::Dependency& d : program_.deps(i)) {
      const std::uint32_t other = program_.ranks[rank].first_tb + d.tb;
      if (position_[other] <= d.step) return other;
      level = std::max(level, after_[program_.threadblocks[other].first_instruction + d.step]);
    }
    if (does.receives) {
      const std::uint32_t wire = wiring_.receiving[t];
      if (taken_[wire] == sent_[wire].size()) return wiring_.wires[wire].send_tb;
      level = std::max(level, sent_[wire][taken_[wire]++]);
    }
    if (does.sends) {
      std::vector<std::uint64_t>& sent = sent_[wiring_.sending[t]];
      if (step_of_ == nullptr) {
        const std::uint64_t previous = split_ && !sent.empty() ? sent.back() : 0;
        sent.push_back(std::max(level, previous) + 1);
      } else {
        kept_ &= (*step_of_)[t] > level;
        sent.push_back((*step_of_)[t]);
      }
      const std::uint32_t at = program_.threadblocks[t].first_instruction + position_[t];
      message(wiring_.sending[t], sent.back(), i.count, at);
    }
    known_[t] = level;
    after_[program_.threadblocks[t].first_instruction + position_[t]] = level;
    return kNone;
  }

  // A connection has room for all its messages here, so a threadblock waits only for a message or a step of its rank.
  Diagnostic deadlock(std::size_t unfinished) const {
    Diagnostic problem(ErrorCode::SimulatedDeadlock,
                       "with any number of slots, " + std::to_string(unfinished) + " threadblocks wait forever");
    const auto first = std::ranges::find_if(awaited_, [](std::uint32_t t) { return t != kNone; });
    const auto describe = [this](std::uint32_t t) {
      const bool step = wiring_.rank_of[t] == wiring_.rank_of[awaited_[t]];
      return step ? " waits for " : " waits for a message from ";
    };
    note_cycle(
        problem, static_cast<std::uint32_t>(first - awaited_.begin()), awaited_.size(),
        [this](std::uint32_t t) { return awaited_[t]; }, describe,
        [this](std::uint32_t t) { return step_name(program_, wiring_, t, position_[t]); });
    return problem;
  }

  const ir::Program& program_;
  const Wiring& wiring_;
  bool split_;
  const std::vector<std::uint32_t>* step_of_;
  bool kept_ = true;
  std::vector<std::uint64_t> after_;     // per instruction: the latest step whose message is known after it
  std::vector<std::uint32_t> position_;  // per threadblock
  std::vector<std::uint32_t> awaited_;   // per threadblock: the one it waits for
  std::vector<std::uint64_t> known_;
  std::vector<std::vector<std::uint64_t>> sent_;  // per wire: the steps of its messages
  std::vector<std::size_t> taken_;
};

struct Traffic {
  std::uint64_t step;
  std::uint32_t wire;
  std::uint32_t chunks;
  std::uint32_t instruction;
};

Steps sum(const Simulator& simulator, std::vector<Traffic>& traffic, const std::vector<std::uint64_t>& per_round) {
  std::ranges::stable_sort(traffic, {}, &Traffic::step);
  const Wiring& wiring = simulator.wiring();
  const std::vector<LinkClass>& classes = simulator.machine().data().classes;
  std::vector<std::uint64_t> chunks(per_round.size());
  // The latest step in which a resource has carried a group. Messages of a group may take different ways, such as to
  // several boards, that have the port in common.
  using Latest = std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t>;  // by group and resource
  Latest multicast;
  Latest added;
  Steps result;
  Breath breathe;
  for (std::size_t first = 0, end = 0; first != traffic.size(); first = end) {
    breathe();
    std::uint64_t rounds = 0;
    double latency = 0;
    const auto load = [&](Slice way, std::uint64_t count, std::uint32_t group, Latest& carried) {
      for (std::uint32_t k = way.first; k != way.first + way.count; ++k) {
        const std::uint32_t r = wiring.resources[k];
        const std::uint64_t step = traffic[end].step;
        if (group != kNone && std::exchange(carried[std::pair(group, r)], step) == step) continue;
        chunks[r] += count;
        rounds = std::max(rounds, (chunks[r] + per_round[r] - 1) / per_round[r]);
      }
    };
    for (end = first; end != traffic.size() && traffic[end].step == traffic[first].step; ++end) {
      const Wire& wire = wiring.wires[traffic[end].wire];
      const ir::Switched groups =
          wiring.carried.empty() ? ir::Switched() : wiring.carried[traffic[end].instruction].whole;
      load(wire.out, traffic[end].chunks, groups.multicast, multicast);
      load(wire.into, traffic[end].chunks, groups.reduction, added);
      latency = std::max(latency, classes[wire.link_class].latency_s);
    }
    std::ranges::fill(chunks, 0);
    ++result.steps;
    result.rounds += rounds;
    result.latency += picoseconds(latency);
  }
  return result;
}

// The chunks that each resource carries in a round.
Result<std::vector<std::uint64_t>> capacities(const Simulator& simulator, double round_bytes_per_s) {
  std::vector<std::uint64_t> per_round;
  for (const Resource& r : simulator.machine().data().resources) {
    per_round.push_back(static_cast<std::uint64_t>(r.bytes_per_s / round_bytes_per_s + kRounding));
  }
  for (const std::uint32_t r : simulator.wiring().resources) {
    if (per_round[r] == 0) {
      return Diagnostic(ErrorCode::BadSimulation, "resource " + std::to_string(r) +
                                                      " cannot carry a chunk in a round of " +
                                                      std::to_string(round_bytes_per_s / 1e9) + " GB/s");
    }
  }
  return per_round;
}

}  // namespace

Result<Steps> alpha_beta_by(const Simulator& simulator, double round_bytes_per_s,
                            const std::vector<std::uint32_t>& step_of) {
  if (step_of.size() != simulator.program().threadblocks.size()) {
    return Diagnostic(ErrorCode::BadSimulation, "expected a step for each threadblock");
  }
  GC3_CHECK(ir::check_plain(simulator.program(), "an alpha-beta cost"));
  GC3_ASSIGN(const std::vector<std::uint64_t> per_round, capacities(simulator, round_bytes_per_s));
  std::vector<Traffic> traffic;
  Leveler leveler(simulator, false, &step_of);
  const auto note = [&](std::uint32_t wire, std::uint64_t step, std::uint32_t chunks, std::uint32_t at) {
    traffic.push_back({step, wire, chunks, at});
  };
  GC3_CHECK(leveler.run(note));
  if (!leveler.kept()) return Diagnostic(ErrorCode::BadSimulation, "the program cannot proceed in the steps given");
  return sum(simulator, traffic, per_round);
}

Result<AlphaBeta> alpha_beta(const Simulator& simulator, double round_bytes_per_s) {
  GC3_CHECK(ir::check_plain(simulator.program(), "an alpha-beta cost"));
  GC3_ASSIGN(const std::vector<std::uint64_t> per_round, capacities(simulator, round_bytes_per_s));
  AlphaBeta result;
  for (const bool split : {true, false}) {
    std::vector<Traffic> traffic;
    const auto note = [&](std::uint32_t wire, std::uint64_t step, std::uint32_t chunks, std::uint32_t at) {
      traffic.push_back({step, wire, chunks, at});
    };
    GC3_CHECK(Leveler(simulator, split).run(note));
    (split ? result.split : result.merged) = sum(simulator, traffic, per_round);
  }
  return result;
}

}  // namespace gc3::sim
