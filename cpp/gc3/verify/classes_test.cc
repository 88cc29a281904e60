// Programs of which one rank stands for all: the proof on that rank, against the one of the program of all ranks.
#include "gc3/verify/classes.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/verifier.h"
#include "gc3/ir/text.h"
#include "gc3/verify/test_mutant.h"

namespace gc3::verify::test {
namespace {

using ir::ClassProgram;
using model::Axes;
using model::Buffer;

// Rank 0 of a program of the library whose ranks all do the same.
ClassProgram first_rank_of(const std::string& name, std::vector<std::uint32_t> shape, const Axes& input,
                           const Axes& output, const Axes& scratch) {
  std::ifstream stream(std::string(GC3_LIBRARY_PROGRAMS) + "/" + name + ".txt");
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  Result<ir::Program> whole = ir::parse_text(text, name);
  REQUIRE_MESSAGE(whole.ok(), whole.error().str());
  ClassProgram out{std::move(whole).value(), model::Symmetry::of(std::move(shape)).value(), {}};
  ir::Program& one = out.representative;
  one.ranks.resize(1);
  one.threadblocks.resize(one.ranks[0].tb_count);
  const ir::Threadblock& last = one.threadblocks.back();
  one.instructions.resize(last.first_instruction + last.instruction_count);
  one.dependencies.resize(one.instructions.back().dep_begin + one.instructions.back().dep_count);
  one.source = {};
  out.regions = {{Buffer::input, 0, input}, {Buffer::output, 0, output}, {Buffer::scratch, 0, scratch}};
  return out;
}

std::vector<ClassProgram> class_programs() {
  const auto nodes_of_gpus = [](std::uint32_t n) { return Axes{{0, 1}, {1, n}}; };
  const Axes ranks{{1, 1}, {0, 2}};
  std::vector<ClassProgram> out;
  out.push_back(first_rank_of("ring_allreduce-R3", {3}, {{0, 1}}, {{0, 1}}, {}));
  out.push_back(first_rank_of("allpairs_allreduce-R3", {3}, {{0, 1}}, {{0, 1}}, {}));
  out.push_back(first_rank_of("hierarchical_allreduce-N2-G2", {2, 2}, nodes_of_gpus(2), nodes_of_gpus(2), {}));
  out.push_back(first_rank_of("hierarchical_allreduce-N2-G3", {2, 3}, nodes_of_gpus(2), nodes_of_gpus(2), {}));
  out.push_back(first_rank_of("two_step_alltoall-N2-G2", {2, 2}, ranks, ranks, {{1, 1}}));
  return out;
}

std::string first_of(const Report& report) { return report.ok() ? "" : report.diagnostics.front().str(); }

}  // namespace

TEST_CASE("programs whose ranks do the same are proven on one of them") {
  std::size_t proven = 0;
  for (const ClassProgram& program : class_programs()) {
    CAPTURE(program.representative.name);
    const Result<ir::Program> whole = ir::expand(program);
    REQUIRE(whole.ok());
    const Report one = verify_representative(program);
    const Report all = verify(whole.value());
    CHECK(first_of(one) == first_of(all));
    CHECK(one.transfers == all.transfers);
    proven += one.ok() ? 1 : 0;
  }
  CHECK(proven == 5);
}

TEST_CASE("mutants of such programs are proven on one rank only if the program of all ranks is right") {
  std::mt19937_64 random(43);
  int mutants = 0;
  int accepted = 0;
  int left_to_whole = 0;
  for (const ClassProgram& program : class_programs()) {
    CAPTURE(program.representative.name);
    const auto judge = [&](const ir::Program& representative) {
      const ClassProgram mutant{representative, program.symmetry, program.regions};
      const Report one = verify_representative(mutant);
      const Result<ir::Program> whole = ir::expand(mutant);
      REQUIRE(whole.ok());
      const Report all = verify(whole.value());
      CAPTURE(first_of(one));
      CAPTURE(first_of(all));
      ++mutants;
      accepted += one.ok() ? 1 : 0;
      left_to_whole += !one.ok() && all.ok() ? 1 : 0;
      if (one.ok()) CHECK(all.ok());
      if (one.ok() || one.diagnostics.front().code != ErrorCode::BadStructure) CHECK(verify(mutant).ok() == all.ok());
    };
    for (const Mutation& mutation : kMutations) {
      const std::string name = mutation.name;
      CAPTURE(name);
      for (int n = 0; n < 16; ++n) {
        Mutant mutant(program.representative, random);
        if ((mutant.*mutation.apply)()) judge(mutant.program());
      }
    }
    for (int n = 0; n < 24; ++n) {  // to any other rank
      ir::Program redirected = program.representative;
      ir::Threadblock& tb = redirected.threadblocks[random() % redirected.threadblocks.size()];
      std::uint32_t& peer = random() % 2 == 0 ? tb.send_peer : tb.recv_peer;
      peer = static_cast<std::uint32_t>(random() % program.ranks());
      judge(redirected);
    }
  }
  MESSAGE(mutants, " mutants, ", accepted, " proven on one rank, ", left_to_whole, " only as a whole");
  CHECK(mutants >= 1000);
  CHECK(accepted >= 50);
  CHECK(left_to_whole < accepted / 4);
}

TEST_CASE("a symmetry that does not fit is refused") {
  ClassProgram program = class_programs().front();
  const auto refused = [](const ClassProgram& p) { return first_of(verify(p)); };
  ClassProgram other = program;
  other.symmetry = model::Symmetry::of({2}).value();
  CHECK(refused(other).find("a machine of 2 ranks, and the collective has 3") != std::string::npos);
  other = program;
  other.regions[0].axes.clear();
  CHECK(refused(other).find("do not map what allreduce requires to itself") != std::string::npos);
  other = program;
  other.regions[2].axes = {{0, 1}};
  other.representative.ranks[0].scratch_chunks = 4;
  CHECK(refused(other).find("do not permute the chunks of scratch") != std::string::npos);
  other = program;  // what lies behind chunk 3 of the input is compared with no output
  other.regions.insert(other.regions.begin() + 1, ir::Region{Buffer::input, 3, {}});
  CHECK(refused(other).find("input and output are one region each") != std::string::npos);
  other = program;
  for (ir::Region& region : other.regions) region.axes.clear();
  CHECK_FALSE(verify(other).ok());
}

}  // namespace gc3::verify::test
