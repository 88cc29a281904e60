#include "gc3/runtime/interp/plan.h"

#include <doctest/doctest.h>

#include "gc3/base/errors/verifier.h"
#include "gc3/ir/text.h"
#include "gc3/runtime/interp/divisors.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3::interp {
namespace {

using model::CollectiveKind;
using model::Protocol;
using testing::in;
using testing::out;
using testing::ProgramBuilder;
using testing::scratch;

// Rank 0 sends its input to rank 1.
ir::Program pair() {
  ProgramBuilder b(CollectiveKind::broadcast, 2, 2, false, Protocol::Simple);
  b.tb(0, 1);
  b.send(in(0), 2);
  b.tb(0);
  b.step(ir::Opcode::copy, in(0), out(0), 2);
  b.tb(1, ir::kNoRank, 0);
  b.recv(out(0), 2);
  return b.build();
}

ErrorId refusal(const ir::Program& program) {
  const auto plan = Plan::create(program);
  REQUIRE(!plan.ok());
  return plan.error().code;
}

TEST_CASE("a plan resolves connections, operands and dependencies") {
  const auto plan = Plan::create(testing::allpairs_allreduce(3, false, Protocol::LL));
  REQUIRE(plan.ok());
  const Plan& p = plan.value();
  CHECK(p.protocol == Protocol::LL);
  CHECK(p.threadblocks.size() == 9);
  CHECK(p.connections.size() == 6);
  for (const Connection& c : p.connections) {
    CHECK(p.threadblocks[c.sender_tb].send_peer == p.threadblocks[c.receiver_tb].rank);
    CHECK(p.threadblocks[c.receiver_tb].recv_peer == p.threadblocks[c.sender_tb].rank);
  }
  const PlanThreadblock& tb = p.threadblocks[1];
  const Step& nop = p.steps[tb.first_step + 2];
  REQUIRE(nop.wait_count == 1);
  CHECK(p.waits[nop.wait_begin].tb == 0);
  CHECK(p.waits[nop.wait_begin].steps == 4);       // step 3 finished
  CHECK(p.waits[nop.wait_begin].step_count == 4);  // of four
  CHECK(p.place(1, 2) == "rank 0 threadblock 1 step 2 (nop)");
}

TEST_CASE("the plan of a rank that makes its own steps alone is its part of the plan of all ranks") {
  const ir::ClassProgram program = ir::parse_classes(testing::kHierarchicalOfClasses).value();
  const Plan whole = Plan::create(ir::expand(program).value()).value();
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const Plan own = Plan::create(program, rank).value();
    CHECK(own.only == rank);
    CHECK(own.slots == whole.slots);
    CHECK(own.max_count == whole.max_count);
    CHECK(own.ranks[rank].copies_input == whole.ranks[rank].copies_input);
    REQUIRE(own.threadblocks.size() == whole.threadblocks.size());
    CHECK(own.connections.size() == whole.connections.size());
    for (std::size_t t = 0; t < own.threadblocks.size(); ++t) {
      const PlanThreadblock& made = own.threadblocks[t];
      const PlanThreadblock& wanted = whole.threadblocks[t];
      CHECK(made.rank == wanted.rank);
      CHECK(made.tb == wanted.tb);
      CHECK(made.send_peer == wanted.send_peer);
      CHECK(made.recv_peer == wanted.recv_peer);
      if (wanted.send_connection != kNone) {
        const Connection& to = own.connections[made.send_connection];
        CHECK(to.sender_tb == t);
        CHECK(to.receiver_tb == whole.connections[wanted.send_connection].receiver_tb);
        CHECK(own.threadblocks[to.receiver_tb].recv_connection == made.send_connection);
      }
      CHECK(made.step_count == (made.rank == rank ? wanted.step_count : 0));
      for (std::uint32_t s = 0; s < made.step_count; ++s) {
        const Step& a = own.steps[made.first_step + s];
        const Step& b = whole.steps[wanted.first_step + s];
        CHECK(a.opcode == b.opcode);
        CHECK(a.count == b.count);
        CHECK(a.src.chunk == b.src.chunk);
        CHECK(a.dst.chunk == b.dst.chunk);
        REQUIRE(a.wait_count == b.wait_count);
        for (std::uint32_t w = 0; w < a.wait_count; ++w) {
          CHECK(own.waits[a.wait_begin + w].tb == whole.waits[b.wait_begin + w].tb);
          CHECK(own.waits[a.wait_begin + w].steps == whole.waits[b.wait_begin + w].steps);
        }
      }
    }
  }
}

TEST_CASE("operands of an in-place program are canonical") {
  ProgramBuilder b(CollectiveKind::allgather, 2, 2, true, Protocol::Simple);
  b.tb(1, 0);
  b.send(out(3));
  b.tb(0, ir::kNoRank, 1);
  b.recv(out(3));
  const auto plan = Plan::create(b.build());
  REQUIRE(plan.ok());
  const Step& send = plan.value().steps[1];
  CHECK(send.src.buffer == 1);
  CHECK(send.src.chunk == 3);
  CHECK(send.src.block == 1);
  CHECK(send.src.index == 1);
  CHECK(plan.value().ranks[1].input_aliased);
  CHECK(plan.value().ranks[1].alias_block == 1);
  ProgramBuilder inner(CollectiveKind::allgather, 2, 2, true, Protocol::Simple);
  inner.tb(1, 0);
  inner.send(in(1));  // the same place, by the name of the buffer inside the other
  inner.tb(0, ir::kNoRank, 1);
  inner.recv(out(3));
  CHECK(refusal(inner.build()) == ErrorCode::BadStructure);
}

TEST_CASE("malformed programs are refused, each for its reason") {
  REQUIRE(Plan::create(pair()).ok());
  ir::Program p = pair();
  p.instructions[0].src_chunk = 1;  // chunks 1 and 2 of 2
  CHECK(refusal(p) == ErrorCode::BadStructure);
  p = pair();
  p.instructions[0].src_buffer = model::Buffer::scratch;
  CHECK(refusal(p) == ErrorCode::BadStructure);
  p = pair();
  p.instructions[0].count = 0;
  CHECK(refusal(p) == ErrorCode::BadStructure);
  p = pair();
  p.instructions[0].opcode = static_cast<ir::Opcode>(200);
  CHECK(refusal(p) == ErrorCode::BadStructure);
  p = pair();
  p.instructions[0].dep_count = 1;
  CHECK(refusal(p) == ErrorCode::BadStructure);
  p = pair();
  p.threadblocks[0].send_peer = ir::kNoRank;
  CHECK(refusal(p) == ErrorCode::BadStructure);
  p = pair();
  p.threadblocks[0].send_peer = 2;
  CHECK(refusal(p) == ErrorCode::BadStructure);
  p = pair();
  p.threadblocks[0].instruction_count = 100;
  CHECK(refusal(p) == ErrorCode::BadStructure);
  p = pair();
  p.ranks[1].first_tb = 0xffffffffU;
  CHECK(refusal(p) == ErrorCode::BadStructure);
  p = pair();
  p.ranks.pop_back();
  CHECK(refusal(p) == ErrorCode::BadStructure);
  // A dependency on a step that does not exist, and on one that does not publish its completion.
  p = pair();
  p.dependencies.push_back({1, 7});
  p.instructions[0].dep_count = 1;
  CHECK(refusal(p) == ErrorCode::BadStructure);
  p.dependencies[0] = {1, 0};
  CHECK(refusal(p) == ErrorCode::BadStructure);
  p.instructions[1].has_dependents = 1;
  CHECK(Plan::create(p).ok());
}

TEST_CASE("transfers that do not match are refused") {
  ir::Program p = pair();
  p.instructions[2].count = 1;
  CHECK(refusal(p) == ErrorCode::UnmatchedTransfer);
  p = pair();
  p.threadblocks[2].channel = 1;
  CHECK(refusal(p) == ErrorCode::UnmatchedTransfer);
  p = pair();
  p.instructions[2].opcode = ir::Opcode::nop;
  p.instructions[2].count = 0;
  CHECK(refusal(p) == ErrorCode::UnmatchedTransfer);
}

TEST_CASE("a connection belongs to one threadblock at each end") {
  ProgramBuilder b(CollectiveKind::broadcast, 2, 2, false, Protocol::Simple);
  b.tb(0, 1);
  b.send(in(0));
  b.tb(0, 1);
  b.send(in(1));
  b.tb(1, ir::kNoRank, 0);
  b.recv(out(0));
  b.recv(out(1));
  CHECK(refusal(b.build()) == ErrorCode::SharedConnection);
}

TEST_CASE("the input of an out-of-place program is read-only") {
  ProgramBuilder b(CollectiveKind::allreduce, 1, 2, false, Protocol::Simple);
  b.tb(0);
  b.step(ir::Opcode::copy, in(0), in(1));
  CHECK(refusal(b.build()) == ErrorCode::InputOverwritten);
}

TEST_CASE("data that changes class is found, through messages and scratch as well") {
  CHECK(!Plan::create(testing::ring_allreduce(4, false, Protocol::Simple)).value().moves_between_classes);
  CHECK(!Plan::create(testing::allpairs_allreduce(4, false, Protocol::Simple)).value().moves_between_classes);
  CHECK(!Plan::create(testing::direct_alltoall(3, 4, Protocol::Simple)).value().moves_between_classes);
  // Straight from one class to another.
  ProgramBuilder copy(CollectiveKind::allreduce, 1, 2, false, Protocol::Simple);
  copy.tb(0);
  copy.step(ir::Opcode::copy, in(0), out(1));
  CHECK(Plan::create(copy.build()).value().moves_between_classes);
  // By way of scratch.
  ProgramBuilder rest(CollectiveKind::allreduce, 1, 2, false, Protocol::Simple);
  rest.scratch_chunks(0, 1);
  rest.tb(0);
  rest.step(ir::Opcode::copy, in(0), scratch(0));
  rest.step(ir::Opcode::copy, scratch(0), out(1));
  CHECK(Plan::create(rest.build()).value().moves_between_classes);
  // By way of two messages, of which the second forwards the first.
  ProgramBuilder hops(CollectiveKind::broadcast, 3, 2, false, Protocol::Simple);
  hops.scratch_chunks(1, 1);
  hops.tb(0, 1);
  hops.send(in(0));
  hops.tb(1, 2, 0);
  hops.step(ir::Opcode::recv_copy_send, in(0), scratch(0));
  hops.tb(2, ir::kNoRank, 1);
  hops.recv(out(1));
  CHECK(Plan::create(hops.build()).value().moves_between_classes);
}

TEST_CASE("tiles fit their slots and cover their chunks") {
  const Plan plan = Plan::create(testing::direct_alltoall(2, 3, Protocol::Simple)).value();  // transfers of 3 chunks
  for (const std::uint64_t count : {0U, 1U, 2U, 3U, 4U, 100U, 9999U, 10000U}) {
    for (const std::uint64_t elem : {1U, 2U, 4U, 8U}) {
      for (const std::uint64_t slot : {24U, 100U, 4096U, 1000000U}) {
        const Tiling t = plan.tiling(count, elem, slot);
        CHECK(t.chunk_elems == (count + 2) / 3);
        CHECK(t.tile_elems * 3 * elem <= slot);
        CHECK(t.tiles * t.tile_elems >= t.chunk_elems);
        if (count != 0) CHECK((t.tiles - 1) * t.tile_elems < t.chunk_elems);
        if (count == 0) CHECK(t.tiles == 0);
      }
    }
  }
  CHECK(plan.tiling(100, 8, 23).tiles == 0);  // no room for an element of each chunk
}

TEST_CASE("tiles are whole cache lines if their slots hold one of each chunk, and as large as possible") {
  const Plan plan = Plan::create(testing::direct_alltoall(2, 3, Protocol::Simple)).value();  // transfers of 3 chunks
  for (const std::uint64_t elem : {1U, 2U, 4U, 8U}) {
    const std::uint64_t line = 64 / elem;
    for (std::uint64_t lines = 1; lines < 4; ++lines) {
      for (const std::uint64_t more : {std::uint64_t{0}, std::uint64_t{1}, line - 1}) {
        const Tiling t = plan.tiling(30'000, elem, 3 * elem * (lines * line + more));
        CHECK(t.tile_elems == lines * line);
      }
    }
    CHECK(plan.tiling(30'000, elem, 3 * elem * (line - 1)).tile_elems == line - 1);  // shorter than a line: unchanged
    const Tiling whole = plan.tiling(3 * (line + 1), elem, 1 << 20U);
    CHECK(whole.tile_elems == line + 1);  // a chunk in one tile
    CHECK(whole.tiles == 1);
  }
}

TEST_CASE("no factor of an average is 0: the type with the least range divides the sum instead") {
  CHECK(average_factor(model::DataType::float8_e4m3fn, 1023));
  CHECK_FALSE(average_factor(model::DataType::float8_e4m3fn, 1024));
  CHECK(average_factor(model::DataType::float8_e5m2, 1024));
}

}  // namespace
}  // namespace gc3::interp
