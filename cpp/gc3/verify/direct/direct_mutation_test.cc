// The prover against an executor that shares no code with it, on damaged programs.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>

#include "gc3/base/test_sanitized.h"
#include "gc3/ir/direct/test_direct.h"
#include "gc3/ir/direct/test_mutants.h"
#include "gc3/ir/direct/test_weaver.h"
#include "gc3/verify/direct/verify.h"

namespace gc3::verify::direct {
namespace {

// `each`: mutants of each program and number of ranks; 28 times as many in all.
void judge(std::uint32_t each) {
  // Under a sanitizer few: the executor, which is slow there, is right if it is right without.
  constexpr std::uint32_t kSchedules = testing::kSanitized ? 4 : 30;
  std::mt19937_64 random(each);
  std::uint32_t refused = 0;
  std::uint32_t unfounded = 0;  // refused, and no schedule was found that goes wrong
  for (const std::uint32_t ranks : {2U, 3U}) {
    for (const ir::direct::Program& program : ir::direct::test::all_programs(ranks)) {
      ir::direct::test::Mutator mutator(program);
      for (std::uint32_t k = 0; k < each; ++k) {
        const ir::direct::test::Mutant mutant = mutator.mutate(random);
        const Report report = verify(mutant.program, {.max_diagnostics = 1});
        const std::string wrong = ir::direct::test::wrong_somewhere(mutant.program, kSchedules, random());
        if (report.ok()) {
          CHECK_MESSAGE(wrong.empty(), program.name << ", " << mutant.name << ": " << wrong);
          continue;
        }
        ++refused;
        if (wrong.empty()) ++unfounded;
      }
    }
  }
  // Two unordered stores of one value, and counters that two threadblocks take, are refused and may do no harm.
  CHECK(refused > 12 * each);
  CHECK(unfounded * 8 < refused);
}

TEST_CASE("no damaged program is proven that an executor finds wrong") { judge(12); }
TEST_CASE("nightly: no damaged program of 5,600 is proven that an executor finds wrong" * doctest::skip()) {
  judge(200);
}

}  // namespace
}  // namespace gc3::verify::direct
