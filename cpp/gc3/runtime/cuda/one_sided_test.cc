// One-sided programs on the devices of the fake driver.
#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/devices.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/ir/direct/test_direct.h"
#include "gc3/runtime/cuda/rank_engine.h"
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

// The ranks of a program as engines of their own, which access only what they get handles of.
class Apart {
 public:
  explicit Apart(const Program& program, double timeout_s = 30) {
    std::vector<ArenaHandle> handles;
    for (std::uint32_t r = 0; r < program.collective.ranks(); ++r) {
      auto engine = RankEngine::create(runtime(), program, r, 0, {.timeout_s = timeout_s});
      REQUIRE_MESSAGE(engine.ok(), program.name << ": " << engine.error().str());
      engines.push_back(std::move(engine).value());
      handles.push_back(engines.back()->handle().value());
      streams.push_back(Stream::create(runtime()->device(0).value()).value());
    }
    for (const auto& engine : engines) {
      const Status status = engine->connect(handles);
      REQUIRE_MESSAGE(status.ok(), program.name << ": " << status.error().str());
    }
  }

  // Whether rooms had to be made.
  bool make_room(std::size_t count, DataType type) {
    const bool lacks = engines[0]->lacks_room(count, type).value();
    std::vector<ArenaHandle> rooms;
    for (const auto& engine : engines) {
      CHECK(engine->lacks_room(count, type).value() == lacks);
      if (lacks) rooms.push_back(engine->make_room(count, type).value());
    }
    for (const auto& engine : engines) {
      if (lacks) REQUIRE(engine->share(rooms).ok());
    }
    for (const auto& engine : engines) {
      if (lacks) engine->use_rooms();
    }
    return lacks;
  }

  void check_run(std::size_t count, DataType type = DataType::int32, ReduceOp op = ReduceOp::sum) {
    make_room(count, type);
    testing::Buffers buffers(engines[0]->plan().collective, count, type, op);
    const interp::Call call = buffers.call();
    for (std::uint32_t r = 0; r < engines.size(); ++r) {
      const Status status = engines[r]->enqueue(call.inputs[r], call.outputs[r], count, type, op, {}, streams[r].get());
      REQUIRE_MESSAGE(status.ok(), status.error().str());
    }
    for (const auto& engine : engines) {
      const Status status = engine->synchronize();
      REQUIRE_MESSAGE(status.ok(), status.error().str());
    }
    const auto difference = buffers.difference();
    CHECK_MESSAGE(!difference.has_value(), "count ", count, ": ", *difference);
  }

  std::vector<std::unique_ptr<RankEngine>> engines;
  std::vector<Stream> streams;
};

TEST_CASE("ranks with engines of their own compute what the collective demands, in rooms that grow") {
  for (const std::uint32_t ranks : {2U, 3U}) {
    for (const Program& program : ir::direct::test::all_programs(ranks)) {
      CAPTURE(program.name);
      Apart all(program);
      for (const std::size_t count : {std::size_t{96}, std::size_t{1}, std::size_t{0}, std::size_t{5000}}) {
        CAPTURE(count);
        for (int again = 0; again < 3; ++again) all.check_run(count);
      }
      CHECK(!all.make_room(5000, DataType::int32));
      CHECK(all.make_room(100'000, DataType::float64));
      if (program.collective.kind() == model::CollectiveKind::allreduce) {
        all.check_run(37, DataType::float32, ReduceOp::avg);
      }
    }
  }
}

TEST_CASE("ranks whose calls of a one-sided program differ are told so, and which ranks they are") {
  Apart all(ir::direct::test::one_shot(3));
  all.check_run(96);
  std::vector<std::int32_t> in(100);
  std::vector<std::vector<std::int32_t>> out(3, in);
  const auto enqueue = [&](std::uint32_t r, std::uint64_t count) {
    return all.engines[r]->enqueue(in.data(), out[r].data(), count, DataType::int32, ReduceOp::sum, {},
                                   all.streams[r].get());
  };
  for (std::uint32_t r = 0; r < 3; ++r) REQUIRE(enqueue(r, r == 1 ? 48 : 96).ok());
  // Later calls are queued already, which are alike.
  for (std::uint32_t r = 0; r < 3; ++r) static_cast<void>(enqueue(r, 24));
  for (std::uint32_t r = 0; r < 3; ++r) {
    const Status status = all.engines[r]->synchronize();
    REQUIRE(!status.ok());
    CHECK(status.error().code == ErrorCode::CallsDiffer);
    const std::string expected = r == 1 ? "is not that of rank 0, rank 2" : "is not that of rank 1";
    CHECK_MESSAGE(status.error().str().find(expected) != std::string::npos, status.error().str());
    CHECK(!all.engines[r]->check().ok());
  }
}

TEST_CASE("ranks with different one-sided programs, or rooms of different sizes, are refused") {
  auto first = RankEngine::create(runtime(), ir::direct::test::one_shot(2), 0, 0, {}).value();
  auto second = RankEngine::create(runtime(), ir::direct::test::two_shot(2), 1, 0, {}).value();
  const std::vector<ArenaHandle> handles = {first->handle().value(), second->handle().value()};
  for (const auto* engine : {&first, &second}) {
    CHECK((*engine)->connect(handles).error().code == ErrorCode::CallsDiffer);
  }
  Apart all(ir::direct::test::one_shot(2));
  const std::vector<ArenaHandle> rooms = {all.engines[0]->make_room(10, DataType::int32).value(),
                                          all.engines[1]->make_room(1000, DataType::int32).value()};
  for (const auto& engine : all.engines) {
    const Status status = engine->share(rooms);
    REQUIRE(!status.ok());
    CHECK_MESSAGE(status.error().str().find("makes a call of another size") != std::string::npos, status.error().str());
  }
  // Without a room there is no call.
  std::int32_t x = 0;
  CHECK(!all.engines[0]->enqueue(&x, &x, 1, DataType::int32, ReduceOp::sum, {}, all.streams[0].get()).ok());
}

TEST_CASE("a rank that does not come is named by the others' waits") {
  Apart all(ir::direct::test::one_shot(2), 0.2);
  all.make_room(8, DataType::int32);
  std::vector<std::int32_t> in(8);
  std::vector<std::int32_t> out(8);
  const auto& engine = all.engines[0];
  REQUIRE(engine->enqueue(in.data(), out.data(), 8, DataType::int32, ReduceOp::sum, {}, all.streams[0].get()).ok());
  const Status status = engine->synchronize();
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::Timeout);
  CHECK_MESSAGE(status.error().str().find("was waiting in call 1") != std::string::npos, status.error().str());
}

}  // namespace
}  // namespace gc3::cuda
