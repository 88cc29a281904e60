#include <doctest/doctest.h>

#include "gc3/ir/direct/test_direct.h"

namespace gc3::ir::direct::test {

TEST_CASE("The programs for tests have the form of direct programs") {
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    for (const Program& program : all_programs(ranks)) CHECK(program.tbs(ranks - 1).size() == program.tbs(0).size());
  }
}

TEST_CASE("A damaged direct program is refused") {
  const Program whole = one_shot(2);
  const auto refused = [](const Program& program) {
    Findings findings(5);
    return !check_structure(program, findings) && !findings.empty();
  };
  CHECK(!refused(whole));
  for (std::size_t k = 0; k < whole.operands.size(); ++k) {
    Program damaged = whole;
    damaged.operands[k].chunk += 1;
    CHECK(refused(damaged));
    damaged = whole;
    damaged.operands[k].owner = 2;
    CHECK(refused(damaged));
  }
  for (std::size_t k = 0; k < whole.steps.size(); ++k) {
    Program damaged = whole;
    damaged.steps[k].first += 1;
    CHECK(refused(damaged));
  }
}

}  // namespace gc3::ir::direct::test
