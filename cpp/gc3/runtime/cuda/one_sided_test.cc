// One-sided programs on the devices of the fake driver.
#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/devices.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/ir/direct/test_direct.h"
#include "gc3/runtime/cuda/test_engines.h"

namespace gc3::cuda {
namespace {

using ir::direct::Op;
using ir::direct::Program;
using model::DataType;
using model::ReduceOp;

std::unique_ptr<Engine> made(const Program& program, double timeout_s = 30) {
  auto engine = Engine::create(runtime(), program, {0}, {.timeout_s = timeout_s});
  REQUIRE_MESSAGE(engine.ok(), program.name << ": " << engine.error().str());
  return std::move(engine).value();
}

TEST_CASE("every one-sided program computes what its collective demands, call after call") {
  for (const std::uint32_t ranks : {2U, 3U}) {
    for (const Program& program : ir::direct::test::all_programs(ranks)) {
      CAPTURE(program.name);
      const auto engine = made(program);
      // Whole vectors, with a rest, of unequal chunks, less than a chunk, and again with more room in scratch.
      for (const std::size_t count : {std::size_t{96}, std::size_t{1}, std::size_t{1000}, std::size_t{96}}) {
        for (int again = 0; again < 3; ++again) check_run(*engine, count);
      }
    }
  }
}

TEST_CASE("every type and operation of a one-sided program") {
  const auto plain = made(ir::direct::test::one_shot(2));
  const auto packets = made(ir::direct::test::packet_two_shot(2));
  for (const DataType type : testing::kAllTypes) {
    for (const ReduceOp op : testing::kAllOps) {
      if (!testing::takes(op, type)) continue;
      check_run(*plain, 37, type, op);
      check_run(*packets, 37, type, op);
    }
  }
}

TEST_CASE("a step with more operands than fit into shared memory") {
  check_run(*made(ir::direct::test::one_shot(kMaxRanks)), 5);
}

// Of a program that waits for what nobody gives: where, twice, because the engine can be used again.
void check_stopped(const Program& program, const std::string& where) {
  const auto engine = made(program, 0.2);
  testing::Buffers buffers(engine->plan().collective, 8, DataType::int32, ReduceOp::sum);
  for (int again = 0; again < 2; ++again) {
    const Status status = engine->run(buffers.call());
    REQUIRE(!status.ok());
    CHECK(status.error().code == ErrorCode::Timeout);
    const std::string text = status.error().str();
    CHECK_MESSAGE(text.find(where) != std::string::npos, text);
  }
}

TEST_CASE("a wait of a one-sided program that lasts too long says where") {
  SUBCASE("a signal") {
    Program program = ir::direct::test::one_shot(2);
    for (std::size_t at = 0; at < program.steps.size(); ++at) {
      if (program.steps[at].op != Op::signal) continue;
      program.steps[at] = {Op::wait, false, 0, program.steps[at].first, 1, 0, kNone};  // for the other's only signal
      program.objects[program.steps[at].first] ^= 1U;
      break;
    }
    check_stopped(program, "rank 0 threadblock 0 step 1 (wait 1 relaxed) was waiting in call 1");
  }
  SUBCASE("a token") {
    Program program = ir::direct::test::passed_on(2);
    for (ir::direct::Semaphore& s : program.semaphores) s.initial = 0;
    check_stopped(program, "(acquire ");
  }
  SUBCASE("a barrier") {
    Program program = ir::direct::test::passed_on(2);
    ++program.barriers[0].threadblocks;
    check_stopped(program, "(barrier 0) was waiting in call 1");
  }
  SUBCASE("a packet") {
    Program program = ir::direct::test::packet_all_gather(2);
    ++program.operands[1].chunk;  // rank 0 stores to another place than rank 1 waits for
    check_stopped(program, "rank 1 threadblock 0 step 2 (move pkt sc[0] -> out[0]) was waiting in call 1");
  }
}

TEST_CASE("a one-sided program that is too large, or wrong, is refused before a launch") {
  Program program = ir::direct::test::one_shot(2);
  program.steps[0].op = Op::move;
  CHECK(!Engine::create(runtime(), program, {0}, {}).ok());
  CHECK(Engine::create(runtime(), ir::direct::test::one_shot(2), {0}, {.timeout_s = -1}).error().code ==
        ErrorCode::BadOption);
  const auto many = Engine::create(runtime(), ir::direct::test::one_shot(kMaxRanks + 1), {0}, {});
  REQUIRE(!many.ok());
  CHECK(many.error().code == ErrorCode::NotResident);
}

}  // namespace
}  // namespace gc3::cuda
