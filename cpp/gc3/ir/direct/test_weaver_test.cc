#include "gc3/ir/direct/test_weaver.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "gc3/base/test_sanitized.h"
#include "gc3/ir/direct/test_direct.h"
#include "gc3/ir/direct/test_mutants.h"

namespace gc3::ir::direct::test {
namespace {

// The program with each step as `edit` leaves it, or without those for which it says false. `k`: its number in its
// threadblock.
Program edited(const Program& program, const std::function<bool(Step& step, std::uint32_t k)>& edit) {
  DirectBuilder b(program.name, program.collective);
  Program made = program;
  made.ranks.clear();
  made.threadblocks.clear();
  made.steps.clear();
  made.operands.clear();
  made.objects.clear();
  b.program() = std::move(made);
  for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
    b.rank(program.ranks[r].scratch_chunks);
    for (const Threadblock& tb : program.tbs(r)) {
      b.tb();
      for (std::uint32_t k = 0; k < tb.step_count; ++k) {
        const Step& from = program.steps[tb.first_step + k];
        Step step = from;
        if (!edit(step, k)) continue;
        if (step.op == Op::move) {
          const auto sources = program.sources(from);
          const auto targets = program.targets(from);
          b.move({sources.begin(), sources.end()}, {targets.begin(), targets.end()}, step.count, step.channel);
        } else {
          const auto objects = program.objects_of(from);
          b.step(step.op, {objects.begin(), objects.end()}, step.relaxed);
        }
      }
    }
  }
  return b.finish();
}
Program without(const Program& program, std::uint32_t first, std::uint32_t last) {
  return edited(program, [&](Step&, std::uint32_t k) { return k < first || k > last; });
}
Program relaxed(const Program& program) {
  return edited(program, [](Step& step, std::uint32_t) {
    step.relaxed = step.op == Op::signal || step.op == Op::wait;
    return true;
  });
}

}  // namespace

TEST_CASE("the executor finds nothing wrong with right direct programs") {
  constexpr std::uint32_t kSchedules = gc3::testing::kSanitized ? 1 : 4;
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    for (const Program& program : all_programs(ranks)) {
      CHECK_MESSAGE(wrong_somewhere(program, kSchedules) == "", program.name, " of ", ranks, " ranks");
    }
  }
}

TEST_CASE("the executor finds what is wrong with direct programs") {
  const auto finds = [](const Program& program, const std::string& what) {
    const std::string wrong = wrong_somewhere(program, 20);
    CHECK_MESSAGE(wrong.find(what) != std::string::npos, program.name, ": ", wrong);
  };
  // Steps: 0 signal, 1 wait, 2 sync, 3 move, 4 sync, 5 signal, 6 wait, 7 sync.
  finds(without(push_all_gather(2), 0, 1), "half");
  finds(without(one_shot(2), 0, 1), "several values from half");  // the inputs of two calls
  finds(without(one_shot(2), 2, 2), "several values from half");  // a thread that is not behind the wait
  finds(without(one_shot(2), 4, 6), "half");
  finds(without(one_shot(2), 4, 4), "before thread");
  finds(without(one_shot(2), 6, 6), "half");
  finds(without(one_shot(2), 5, 5), "waits forever");
  finds(without(push_all_gather(2), 4, 4), "the user of rank");
  finds(relaxed(push_all_gather(2)), "the user of rank");
  finds(relaxed(two_shot(3)), "several values from half");
  finds(relaxed(multicast_all_reduce(2)), "the user of rank");
  CHECK(wrong_somewhere(relaxed(one_shot(2)), 20) == "");
  CHECK(wrong_somewhere(relaxed(pull_reduce_scatter(3)), 20) == "");
  finds(edited(port_all_to_all(2), [](Step& s, std::uint32_t) { return s.op != Op::flush; }), "the proxy of channel");
  finds(edited(passed_on(2), [](Step& s, std::uint32_t) { return s.op != Op::acquire; }), "of scratch[0]");
  finds(edited(passed_on(2), [](Step& s, std::uint32_t) { return s.op != Op::release; }), "waits forever");
  finds(edited(passed_on(2), [](Step& s, std::uint32_t) { return s.op != Op::barrier; }), "half");
  Program program = packet_one_shot(2);
  for (Operand& o : program.operands) {
    if (o.access == Access::packet) o.access = Access::plain;
  }
  finds(program, "wrong after call 0");
  finds(edited(packet_one_shot(2), [](Step&, std::uint32_t k) { return k == 1; }), "waits forever");
  for (const auto& make : {packet_all_gather, packet_one_shot}) {
    program = make(3);
    program.halves = 1;
    CHECK(wrong_somewhere(program, 40) != "");
  }
  program = packet_two_shot(3);  // a rank stores again only after it has heard that the last packets were taken
  program.halves = 1;
  CHECK(wrong_somewhere(program, 40) == "");
}

TEST_CASE("mutants of direct programs have the form of programs") {
  constexpr std::uint32_t kEach = gc3::testing::kSanitized ? 4 : 10;
  std::mt19937_64 random(1);
  std::uint32_t wrong = 0;
  for (const Program& program : all_programs(2)) {
    Mutator mutator(program);
    for (std::uint32_t k = 0; k < kEach; ++k) {
      if (!wrong_somewhere(mutator.mutate(random).program, 4).empty()) ++wrong;
    }
  }
  CHECK(wrong > 6 * kEach);  // of 13 times as many
  CHECK(wrong < 13 * kEach);
}

}  // namespace gc3::ir::direct::test
