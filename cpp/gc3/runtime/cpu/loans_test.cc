// Which steps may lend the data that they send.
#include "gc3/runtime/cpu/loans.h"

#include <doctest/doctest.h>

#include <string>

#include "gc3/ir/text.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3::cpu {
namespace {

using ir::Opcode;
using model::CollectiveKind;
using model::Protocol;
using testing::in;
using testing::out;
using testing::ProgramBuilder;

// One letter for each step of a rank: M may lend data that is copied, C data that is reduced as well, - none.
std::string loans(const ir::Program& program, std::uint32_t rank) {
  std::string found;
  const interp::Plan plan = interp::Plan::create(program).value();
  for (const Loan lends : steps_that_lend(plan, rank)) found += "-MC"[static_cast<std::size_t>(lends)];
  return found;
}

// Rank 0 sends `sent`, then executes `next` on out[0]. Rank 1 receives, and then sends back if `answers`.
ir::Program sends_then(testing::At sent, Opcode next, bool answers) {
  ProgramBuilder b(CollectiveKind::allgather, 2, 1, false, Protocol::Simple);
  b.tb(0, 1, answers ? 1 : ir::kNoRank);
  b.step(Opcode::copy, in(0), out(0));
  b.send(sent);
  if (next == Opcode::recv) {
    b.recv(out(0));
  } else {
    b.step(next, in(0), out(0), next == Opcode::nop ? 0 : 1);
  }
  b.tb(1, answers ? 0 : ir::kNoRank, 0);
  b.recv(out(0));
  if (answers) b.send(out(0));
  return b.build();
}

TEST_CASE("data that is not written after the send is lent") {
  CHECK(loans(sends_then(in(0), Opcode::copy, false), 0) == "-M-");
  CHECK(loans(sends_then(out(0), Opcode::nop, false), 0) == "-M-");
}

TEST_CASE("data that is overwritten later is lent only if the receiver must have finished with it by then") {
  CHECK(loans(sends_then(out(0), Opcode::copy, false), 0) == "---");
  CHECK(loans(sends_then(out(0), Opcode::recv, true), 0) == "-M-");
}

TEST_CASE("what an operation writes counts as a write: before the send it is lent, after it the send is not") {
  for (const bool later : {true, false}) {
    interp::Plan plan = interp::Plan::create(sends_then(out(0), Opcode::nop, false)).value();
    interp::Step& applied = plan.steps[later ? 2 : 0];
    applied = {};
    applied.opcode = interp::Op::apply;
    plan.compute.operands = {{in(0).buffer, 0, 0}, {out(0).buffer, 0, 0}};
    plan.compute.applications = {{.operation = 0, .first = 0, .reads = 1, .writes = 1}};
    CHECK(steps_that_lend(plan, 0)[1] == (later ? Loan::none : Loan::moved));
  }
}

TEST_CASE("a later write by another threadblock counts; dependencies give its order") {
  for (const bool before : {true, false}) {
    ProgramBuilder b(CollectiveKind::allgather, 2, 1, false, Protocol::Simple);
    b.tb(0, 1);
    b.send(out(0), 1, before ? ProgramBuilder::Deps{{1, 0}} : ProgramBuilder::Deps{});
    b.tb(0);
    b.step(Opcode::copy, in(0), out(0));
    b.tb(1, ir::kNoRank, 0);
    b.recv(out(0));
    CHECK(loans(b.build(), 0) == (before ? "M-" : "--"));
  }
}

TEST_CASE("a ring lends the data that it stores; data that it only forwards is in no buffer") {
  // send, rrs, rrcs, rcs, recv
  CHECK(loans(testing::ring_allreduce(3, false, Protocol::Simple), 0) == "C-CM-");
  CHECK(loans(testing::ring_allreduce(3, true, Protocol::Simple), 0) == "C-CM-");
}

TEST_CASE("a rank that does not know the steps of the others lends only what nothing overwrites later") {
  const ir::ClassProgram program = ir::parse_classes(testing::kHierarchicalOfClasses).value();
  const interp::Plan own = interp::Plan::create(program, 3).value();
  std::string found;
  for (const Loan lends : steps_that_lend(own, 3)) found += "-MC"[static_cast<std::size_t>(lends)];
  const std::string known = loans(ir::expand(program).value(), 3);
  CHECK(known == "CMCM---");
  CHECK(found == "-M-M---");
}

}  // namespace
}  // namespace gc3::cpu
