// Correct programs with random damage: the verifier must reject exactly the mutants that the oracle rejects.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/verifier.h"
#include "gc3/base/test_sanitized.h"
#include "gc3/ir/text.h"
#include "gc3/verify/test_mutant.h"
#include "gc3/verify/test_oracle.h"
#include "gc3/verify/test_programs.h"
#include "gc3/verify/verify.h"

namespace gc3::verify::test {
namespace {

// Under a sanitizer a share: the oracle, which is slow there, is right if it is right without.
using ir::Instruction;
using ir::Program;
using testing::kSanitized;

bool writes_read_only(const Program& p) {
  for (std::uint32_t r = 0; r < p.ranks.size(); ++r) {
    for (const ir::Threadblock& tb : p.tbs(r)) {
      for (const Instruction& i : p.steps(tb)) {
        const bool writes = ir::info(i.opcode).writes_local && i.count > 0;
        if (writes && !p.collective.writable(r, {i.dst_buffer, i.dst_chunk})) return true;
        for (const ir::Operand& o : p.compute.writes(i)) {
          if (!p.collective.writable(r, {o.buffer, o.chunk})) return true;
        }
      }
    }
  }
  return false;
}

// The codes that the first finding may have; none if the program is correct. Exact, not sampled: without races and
// deadlocks all schedules compute the same.
std::vector<ErrorId> verdict(const Program& p, std::mt19937_64& random) {
  if (!broken_rule(p).empty()) {
    return {ErrorCode::BadStructure, ErrorCode::SharedConnection, ErrorCode::UnmatchedTransfer,
            ErrorCode::InputOverwritten};
  }
  if (writes_read_only(p)) return {ErrorCode::InputOverwritten};
  if (simulate(p, static_cast<std::uint32_t>(p.instructions.size()) + 1, random).deadlock) {
    return {ErrorCode::OrderDeadlock};
  }
  if (simulate(p, p.slots, random).deadlock) return {ErrorCode::SlotDeadlock};
  if (has_race(p)) return {ErrorCode::DataRace};
  if (!simulate(p, p.slots, random).wrong.empty()) return {ErrorCode::UninitializedRead, ErrorCode::WrongResult};
  return {};
}

struct Tally {
  int mutants = 0;
  int accepted = 0;
  std::map<ErrorId, int> rejected;
};

void print(const std::map<std::string, Tally>& by_mutation) {
  constexpr ErrorId kShown[] = {ErrorCode::BadStructure,     ErrorCode::UnmatchedTransfer, ErrorCode::SharedConnection,
                                ErrorCode::InputOverwritten, ErrorCode::OrderDeadlock,     ErrorCode::SlotDeadlock,
                                ErrorCode::DataRace,         ErrorCode::UninitializedRead, ErrorCode::WrongResult};
  std::printf("%-28s %8s %9s", "mutation", "mutants", "accepted");
  for (const ErrorId code : kShown) std::printf(" %s", error_info(code).code.data());
  std::printf("\n");
  Tally all;
  const auto line = [&](const std::string& name, const Tally& t) {
    std::printf("%-28s %8d %9d", name.c_str(), t.mutants, t.accepted);
    for (const ErrorId code : kShown) std::printf(" %8d", t.rejected.contains(code) ? t.rejected.at(code) : 0);
    std::printf("\n");
  };
  for (const auto& [name, t] : by_mutation) {
    line(name, t);
    all.mutants += t.mutants;
    all.accepted += t.accepted;
    for (const auto& [code, n] : t.rejected) all.rejected[code] += n;
  }
  line("all", all);
}

// Compares the verifier's answer with the oracle's.
void judge(const Program& mutant, Tally& tally, std::mt19937_64& random) {
  constexpr int kSchedules = kSanitized ? 0 : 16;  // beside those of verdict()
  const Report report = verify(mutant);
  ++tally.mutants;
  if (report.ok()) {
    ++tally.accepted;
    REQUIRE(verdict(mutant, random).empty());
    for (int k = 0; k < kSchedules; ++k) {
      const Outcome outcome = simulate(mutant, mutant.slots, random);
      CHECK_FALSE(outcome.deadlock);
      CHECK(outcome.wrong == "");
    }
    return;
  }
  const Diagnostic& first = report.diagnostics.front();
  ++tally.rejected[first.code];
  CAPTURE(first.str());
  const std::vector<ErrorId> allowed = verdict(mutant, random);
  CHECK_MESSAGE(!allowed.empty(), "a correct mutant is rejected");
  CHECK_MESSAGE(std::ranges::find(allowed, first.code) != allowed.end(), "rejected for another reason than the oracle");
}

// The compiled programs of the library's algorithms, in text form: golden files of the Python tests.
std::vector<Program> programs_in(const char* folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<Program> programs;
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    Result<Program> program = ir::parse_text(text, file.string());
    REQUIRE_MESSAGE(program.ok(), program.error().str());
    programs.push_back(std::move(program).value());
  }
  return programs;
}

// Programs that compute, whose chunks all have one length: the oracle knows no others.
std::vector<Program> computing_programs() {
  std::vector<Program> programs = programs_in(GC3_COMPUTING_PROGRAMS);
  for (Program& p : programs) {
    p.collective = p.collective.with_lengths(std::vector<std::uint32_t>(p.collective.custom_data()->tensors.size()));
    for (ir::Operand& o : p.compute.operands) o.length = 0;
  }
  return programs;
}

// Damages every program in every way, `times` times, and in two ways at once. No undamaged program may be rejected.
void check_mutants(const std::vector<Program>& programs, int times, std::uint64_t seed) {
  std::map<std::string, Tally> tallies;
  std::mt19937_64 random(seed);
  for (const Program& program : programs) {
    CAPTURE(program.name);
    const Report report = verify(program);
    REQUIRE_MESSAGE(report.ok(), report.diagnostics.front().str());
    if (program.instructions.empty()) continue;  // one rank in place
    for (const Mutation& mutation : kMutations) {
      const std::string name = mutation.name;
      CAPTURE(name);
      for (int n = 0; n < times; ++n) {
        Mutant mutant(program, random);
        if (!(mutant.*mutation.apply)()) continue;
        if (program.has_tensors()) mutant.number_applications();
        judge(mutant.program(), tallies[mutation.name], random);
      }
    }
    for (int n = 0; n < 5 * times; ++n) {
      Mutant mutant(program, random);
      const Mutation& first = kMutations[random() % std::size(kMutations)];
      const Mutation& second = kMutations[random() % std::size(kMutations)];
      if (!(mutant.*first.apply)() || !(mutant.*second.apply)()) continue;
      if (program.has_tensors()) mutant.number_applications();
      judge(mutant.program(), tallies["two of these"], random);
    }
  }
  print(tallies);
  int mutants = 0;
  std::map<ErrorId, int> rejected;
  for (const auto& [name, t] : tallies) {
    mutants += t.mutants;
    for (const auto& [code, n] : t.rejected) rejected[code] += n;
  }
  CHECK(mutants >= (kSanitized ? 800 : 2000));
  CHECK(rejected.size() == 9);  // every class of defect occurs
}

}  // namespace

TEST_CASE("mutants are rejected if and only if the oracle rejects them") {
  check_mutants(small_programs(), kSanitized ? 1 : 4, 42);
}

TEST_CASE("so are mutants of the library's programs") {
  check_mutants(programs_in(GC3_LIBRARY_PROGRAMS), kSanitized ? 4 : 10, 7);
}

TEST_CASE("so are mutants of programs that compute") { check_mutants(computing_programs(), kSanitized ? 10 : 24, 11); }

}  // namespace gc3::verify::test
