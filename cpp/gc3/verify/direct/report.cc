// The diagnostics of verify::direct::Execution.
#include <algorithm>
#include <string>
#include <utility>

#include "gc3/base/errors/verifier.h"
#include "gc3/ir/index.h"
#include "gc3/model/terms.h"
#include "gc3/verify/direct/run.h"

namespace gc3::verify::direct {

using ir::direct::Objects;
using ir::direct::Op;

// "rank 0 threadblock 1 step 3 (move in[0] -> 1:out[0], ring.py:12)".
std::string Execution::step_text(std::uint32_t rank, std::uint32_t tb, std::uint32_t step) const {
  const std::uint32_t number = p_.threadblocks[tb].first_step + step;
  return ir::step_name(rank, tb - p_.ranks[rank].first_tb, step) +
         ir::in_brackets(ir::direct::to_text(p_, rank, p_.steps[number]), p_.source, number);
}

std::string Execution::name_of(std::uint32_t place) const {
  if (place < places_.count()) return places_.name(place);
  const std::size_t packet = place - places_.count();
  const auto next = std::ranges::upper_bound(first_packet_, packet);  // of ranks without packets the last
  const auto rank = static_cast<std::size_t>(next - first_packet_.begin()) - 1;
  return "rank " + std::to_string(rank) + " packets[" + std::to_string(packet - first_packet_[rank]) + "]";
}

std::string Execution::describe(Event event, bool writes) const {
  const Made& m = order_.made(event);
  const std::string call = std::to_string(m.call + 1);
  if (m.tb != kNone)
    return step_text(m.rank, m.tb, m.step) + (writes ? " writes it in call " : " reads it in call ") + call;
  return "the caller of rank " + std::to_string(m.rank) +
         (writes ? " writes it before call " + call : " reads it after call " + std::to_string(m.call));
}

void Execution::report_races(Findings& findings) {
  for (Diagnostic& race : packet_races_) findings.add(std::move(race));
  for (const Order::Race& race : order_.races(findings.room())) {
    const Order::Pair& pair = race.pair;
    Diagnostic found(ErrorCode::DataRace, name_of(pair.place) + ": " + describe(pair.earlier, pair.stored) + " and " +
                                              describe(pair.later, pair.stores) +
                                              ", and no order between them is defined");
    if (!pair.stored && !pair.stores) {
      found.note("the second is a proxy's, which does not wait for packets as the first does");
    } else if (race.done) {
      found.note("the first is done before the second begins, but relaxed signals and packets make nothing visible");
    } else if (order_.made(pair.earlier).proxy) {
      found.note("the first is asynchronous: only a flush or a later signal of its channel comes after it");
    }
    findings.add(std::move(found));
  }
}

void Execution::report_values(Findings& findings) {
  for (Diagnostic& problem : unwritten_) findings.add(std::move(problem));
  std::ranges::stable_sort(wrong_, {}, &Wrong::call);
  for (const Wrong& w : wrong_) {
    if (findings.full()) return;
    if (w.call != wrong_.front().call) break;  // later calls repeat it
    const Terms expected = model::counted(p_.collective.expected_terms(w.rank, w.index));
    const Values::Held held = values_.held(w.value, w.call);
    const std::string holds = w.value == Values::kUnwritten ? "nothing that this call has written"
                              : held.terms                  ? to_string(*held.terms)
                                                            : std::string("too many inputs to list");
    Diagnostic problem(ErrorCode::WrongResult, "rank " + std::to_string(w.rank) + " output[" + std::to_string(w.index) +
                                                   "] holds " + holds + " instead of " + to_string(expected));
    if (held.terms && w.value != Values::kUnwritten) {
      const Terms missing = model::difference(expected, *held.terms);
      const Terms surplus = model::difference(*held.terms, expected);
      if (!missing.empty()) problem.note("missing: " + to_string(missing));
      if (!surplus.empty()) problem.note("too much: " + to_string(surplus));
    }
    if (held.stale) problem.note("some of it is of an earlier call");
    if (w.call > 0) problem.note("in call " + std::to_string(w.call + 1));
    findings.add(std::move(problem));
  }
}

// "waits for signal 2 of channel 3", and in `next` the position in blocks_ of the threadblock that has to give it.
std::string Execution::waits_for(const Block& block, std::uint32_t& next) const {
  next = kNone;
  const auto find = [&](auto&& gives) {
    for (std::uint32_t b = 0; b < blocks_.size() && next == kNone; ++b) {
      if (gives(blocks_[b])) next = b;
    }
  };
  const auto to_come = [&](const Block& b, auto&& wanted) {  // of its steps
    const auto steps = p_.steps_of(p_.threadblocks[b.tb]);
    return std::ranges::any_of(steps.subspan(b.ended || b.call != block.call ? 0 : b.step), wanted);
  };
  const Step& step = step_of(block);
  if (step.op == Op::move) {
    for (const Operand& o : p_.sources(step)) {
      const std::uint32_t chunk = o.chunk + block.chunk;
      if (!is_packet(o.access) || packet(o.owner, chunk, block.call).writer != kNone) continue;
      find([&](const Block& b) {
        return to_come(b, [&](const Step& s) {
          return s.op == Op::move && std::ranges::any_of(p_.targets(s), [&](const Operand& t) {
                   bool reaches = false;
                   each(t, [&](std::uint32_t rank) { reaches = reaches || rank == o.owner; });
                   return reaches && is_packet(t.access) && t.chunk <= chunk && chunk < t.chunk + s.count;
                 });
        });
      });
      return "waits for " + name_of(number_of_packet(o.owner, chunk)) +
             (next == kNone ? ", which nothing writes in this call" : "");
    }
  }
  const std::uint32_t object = p_.objects_of(step)[step.op == Op::barrier ? 0 : block.chunk];
  const Op giver = step.op == Op::wait ? Op::signal : step.op == Op::acquire ? Op::release : Op::barrier;
  find([&](const Block& b) {
    return &b != &block && to_come(b, [&](const Step& s) {
      return s.op == giver && std::ranges::count(p_.objects_of(s), object) != 0 && !b.arrived;
    });
  });
  const std::string number = std::to_string(object);
  if (step.op == Op::barrier) return "waits at barrier " + number;
  return std::string("waits for ") + (step.op == Op::wait ? "a signal of channel " : "semaphore ") + number;
}

void Execution::explain_waiting(Findings& findings) const {
  std::vector<bool> told(blocks_.size());
  const auto first = std::ranges::find_if(blocks_, [](const Block& b) { return !b.ended; });
  if (first == blocks_.end()) return;
  auto at = static_cast<std::uint32_t>(first - blocks_.begin());
  Diagnostic problem(ErrorCode::OrderDeadlock, "these threadblocks wait for each other, or for what nobody gives");
  constexpr int kMost = 12;
  for (int k = 0; k < kMost && at != kNone && !told[at] && !blocks_[at].ended; ++k) {
    told[at] = true;
    const Block& block = blocks_[at];
    std::uint32_t next = kNone;
    const std::string what = waits_for(block, next);
    problem.note(step_text(block.rank, block.tb, block.step) + " " + what + " in call " +
                 std::to_string(block.call + 1));
    at = next;
  }
  if (at != kNone && blocks_[at].ended) {
    problem.note("rank " + std::to_string(blocks_[at].rank) + " has ended the call, and its next waits for the others");
  }
  findings.add(std::move(problem));
}

}  // namespace gc3::verify::direct
