// Programs whose messages copy engines move, with the fake driver: streams wait for values, and nothing but the guard
// or another rank ends such a wait.
#include "gc3/runtime/cuda/copy_lanes.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/runtime/cuda/engine.h"
#include "gc3/runtime/cuda/rank_engine.h"
#include "gc3/runtime/cuda/test_engines.h"
#include "gc3/runtime/interp/interpreter.h"
#include "gc3/runtime/interp/test_programs.h"
#include "gc3/runtime/interp/test_reference.h"

namespace gc3::cuda {
namespace {

using model::Protocol;
using testing::DataType;
using testing::direct_alltoall;
using testing::in;
using testing::out;
using testing::ReduceOp;
using testing::scratch;

std::unique_ptr<Engine> copying_engine(const ir::Program& program, const Options& options = {}) {
  auto engine = make_engine(program, options);
  CHECK(engine->launcher().uses_copy_engines());
  return engine;
}

// AllGather on a ring: each rank passes on what it has received, with the fused opcode or in two steps of two
// threadblocks, the second of which waits for the first.
ir::Program ring_allgather(std::uint32_t ranks, bool fused) {
  testing::ProgramBuilder b(model::CollectiveKind::allgather, ranks, 1, false, Protocol::Copy);
  b.slots(fused ? 2 : 1);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const auto chunk = [&](std::uint32_t k) { return (r + ranks - k) % ranks; };
    const std::uint32_t after = (r + 1) % ranks;
    const std::uint32_t before = (r + ranks - 1) % ranks;
    if (fused) {
      b.tb(r, after, before);
      b.step(ir::Opcode::copy, in(0), out(r));
      b.send(in(0));
      for (std::uint32_t k = 1; k + 1 < ranks; ++k) b.step(ir::Opcode::recv_copy_send, in(0), out(chunk(k)));
      b.recv(out(chunk(ranks - 1)));
      continue;
    }
    b.tb(r, after, ir::kNoRank);
    b.send(in(0));
    for (std::uint32_t k = 1; k + 1 < ranks; ++k) b.send(out(chunk(k)), 1, {{1, k}});
    b.tb(r, ir::kNoRank, before);
    b.step(ir::Opcode::copy, in(0), out(r));
    for (std::uint32_t k = 1; k < ranks; ++k) b.recv(out(chunk(k)));
  }
  return b.build();
}

// Rank 0 sends to rank 1, which passes it on to rank 2.
ir::Program line() {
  testing::ProgramBuilder b(model::CollectiveKind::broadcast, 3, 1, true, Protocol::Copy);
  b.tb(0, 1);
  b.send(out(0));
  b.tb(1, 2, 0);
  b.step(ir::Opcode::recv_copy_send, in(0), out(0));
  b.tb(2, ir::kNoRank, 1);
  b.recv(out(0));
  return b.build();
}

TEST_CASE("copies: in the order of submission no step waits for a later one") {
  for (const std::uint32_t slots : {1U, 2U}) {
    for (const ir::Program& program : {ring_allgather(5, false), direct_alltoall(4, 3, Protocol::Copy)}) {
      const interp::Plan plan = interp::Plan::create(program).value();
      const auto order = order_of_lanes(plan, slots);
      REQUIRE(order.has_value());
      CHECK(order->size() == plan.steps.size());
      std::map<std::uint32_t, std::uint32_t> next;
      std::map<std::uint32_t, std::uint32_t> under_way;
      for (const LaneStep& at : *order) {
        const interp::PlanThreadblock& tb = plan.threadblocks[at.tb];
        const interp::Step& step = plan.steps[tb.first_step + at.step];
        CHECK(at.step == next[at.tb]++);
        for (std::uint32_t w = step.wait_begin; w < step.wait_begin + step.wait_count; ++w) {
          CHECK(next[plan.ranks[tb.rank].first_tb + plan.waits[w].tb] >= plan.waits[w].steps);
        }
        const interp::Does does = interp::does_of(step.opcode);
        if (does.receives) CHECK(under_way[tb.recv_connection]-- > 0);
        if (does.sends) CHECK(++under_way[tb.send_connection] <= slots);
      }
    }
  }
  testing::ProgramBuilder stuck(model::CollectiveKind::allgather, 2, 1, true, Protocol::Copy);
  for (std::uint32_t r = 0; r < 2; ++r) {
    stuck.tb(r, 1 - r, 1 - r);
    stuck.recv(out(1 - r));
    stuck.send(out(r));
  }
  const ir::Program program = stuck.build();
  CHECK(!order_of_lanes(interp::Plan::create(program).value(), 2).has_value());
  auto engine = Engine::create(runtime(), program, {0}, {0, 0, 0.05}).value();
  CHECK(engine->launcher().why_not() == "a step of the program waits for ever");
  testing::Buffers buffers(engine->plan().collective, 10, DataType::int32, ReduceOp::sum);
  CHECK(engine->enqueue(buffers.call(), {nullptr}).ok());
  CHECK(engine->synchronize().error().code == ErrorCode::Timeout);
}

TEST_CASE("copies: results, with one slot and more, at sizes that divide and that do not") {
  for (const std::uint32_t slots : {0U, 1U, 3U}) {
    const auto exchange = copying_engine(direct_alltoall(3, 5, Protocol::Copy), {slots, 4096, 30});
    for (const std::size_t count : {0, 1, 4, 5, 333, 5000}) check_run(*exchange, count);
    const auto ring = copying_engine(ring_allgather(4, false), {slots, 4096, 30});
    for (const std::size_t count : {1, 50, 1000, 12'288}) check_run(*ring, count, DataType::complex128);
    if (slots == 1) continue;
    const auto fused = copying_engine(ring_allgather(4, true), {slots, 4096, 30});
    for (const std::size_t count : {1, 50, 1000, 12'288}) check_run(*fused, count, DataType::int8);
  }
  const auto whole = copying_engine(ring_allgather(2, false));  // slots as they are chosen
  for (const std::size_t count : {1, 100'000}) check_run(*whole, count);
}

TEST_CASE("copies: data that moves between chunks of different length, by way of scratch") {
  testing::ProgramBuilder b(model::CollectiveKind::alltoall, 2, 3, false, Protocol::Copy);
  for (std::uint32_t r = 0; r < 2; ++r) {
    b.scratch_chunks(r, 6);
    b.tb(r, 1 - r, 1 - r);
    for (std::uint32_t c = 0; c < 3; ++c) b.step(ir::Opcode::copy, in(r * 3 + c), scratch(c + r));
    for (std::uint32_t c = 0; c < 3; ++c) b.step(ir::Opcode::copy, scratch(c + r), out(r * 3 + c));
    b.send(in((1 - r) * 3), 3);
    b.recv(out((1 - r) * 3), 3);
  }
  const auto engine = copying_engine(b.build(), {0, 4096, 30});
  for (const std::size_t count : {1, 3, 4, 100, 101, 3001}) check_run(*engine, count, DataType::float64);
}

TEST_CASE("copies: more steps than are submitted at once, and calls on two streams") {
  const auto many = copying_engine(ring_allgather(3, false), {1, 128, 30});  // 626 tiles of up to 3 steps
  check_run(*many, 20'011);
  const auto shared = runtime();
  const auto device = shared->device(0).value();
  const Stream first = Stream::create(device).value();
  const Stream second = Stream::create(device).value();
  auto a = Engine::create(shared, ring_allgather(3, true), {0}, {}).value();
  auto b = Engine::create(shared, direct_alltoall(3, 2, Protocol::Copy), {0}, {}).value();
  testing::Buffers of_a(a->plan().collective, 1000, DataType::int32, ReduceOp::sum);
  testing::Buffers of_b(b->plan().collective, 1000, DataType::float32, ReduceOp::sum);
  for (int i = 0; i < 20; ++i) {
    CHECK(a->enqueue(of_a.call(), {i % 2 == 0 ? first.get() : second.get()}).ok());
    CHECK(b->enqueue(of_b.call(), {i % 2 == 0 ? second.get() : first.get()}).ok());
  }
  CHECK(a->synchronize().ok());
  CHECK(b->synchronize().ok());
  CHECK(!of_a.difference().has_value());
  CHECK(!of_b.difference().has_value());
}

TEST_CASE("copies: a call that is captured is carried out by threadblocks, and the next one by copies again") {
  const auto engine = copying_engine(ring_allgather(3, false));
  for (int i = 0; i < 2; ++i) {
    check_run(*engine, 1000);
    testing::Buffers buffers(engine->plan().collective, 100, DataType::int32, ReduceOp::sum);
    const auto replayed = engine->time_graph(buffers.call(), 1, 5);
    REQUIRE_MESSAGE(replayed.ok(), replayed.error().str());
    CHECK(!buffers.difference().has_value());
  }
  check_run(*engine, 999);
}

// The engines of several ranks, as those of different processes, and a buffer of each.
struct Ranks {
  Ranks(const ir::Program& program, double timeout, std::uint32_t slots = 0) : shared(runtime()) {
    std::vector<ArenaHandle> handles;
    for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
      engines.push_back(RankEngine::create(shared, program, r, 0, {slots, 0, timeout}).value());
      streams.push_back(Stream::create(shared->device(0).value()).value());
      handles.push_back(engines.back()->handle().value());
      data.emplace_back(kMost, 0);
    }
    for (const auto& engine : engines) REQUIRE(engine->connect(handles).ok());
  }
  Status enqueue(std::uint32_t rank, std::size_t count) {
    return engines[rank]->enqueue(data[rank].data(), data[rank].data(), count, DataType::int32, ReduceOp::sum, {},
                                  streams[rank].get());
  }
  static constexpr std::size_t kMost = 1000;
  std::shared_ptr<Runtime> shared;
  std::vector<Stream> streams;
  std::vector<std::vector<std::int32_t>> data;
  std::vector<std::unique_ptr<RankEngine>> engines;
};

TEST_CASE("copies: ranks with engines of their own, which call one after the other") {
  Ranks ranks(line(), 30);
  for (int i = 0; i < 3; ++i) {
    std::iota(ranks.data[0].begin(), ranks.data[0].end(), i);
    for (const std::uint32_t r : {2U, 1U, 0U}) CHECK(ranks.enqueue(r, Ranks::kMost).ok());
    for (const auto& engine : ranks.engines) CHECK(engine->synchronize().ok());
    CHECK(ranks.data[2] == ranks.data[0]);
  }
}

TEST_CASE("copies: a rank that is stopped ends, and no other takes what it sends for data") {
  Ranks ranks(line(), 0.5);
  std::iota(ranks.data[0].begin(), ranks.data[0].end(), 0);
  for (int i = 0; i < 2; ++i) {  // the second call waits behind the first
    CHECK(ranks.enqueue(1, Ranks::kMost).ok());
    CHECK(ranks.enqueue(2, Ranks::kMost).ok());
  }
  ranks.engines[1]->abort();
  CHECK(ranks.engines[1]->synchronize().error().code == ErrorCode::Aborted);
  const Status late = ranks.engines[2]->synchronize();
  REQUIRE(!late.ok());
  CHECK(late.error().code == ErrorCode::Timeout);
  CHECK(late.error().str().find("rank 2 threadblock 0 step 0 (r), tile 0 of 1, waits for a message from rank 1") !=
        std::string::npos);
  CHECK(ranks.enqueue(1, Ranks::kMost).error().code == ErrorCode::Aborted);
}

TEST_CASE("copies: a rank that is stopped does not change what it sent before, unless the receiver learns of it") {
  using Hold = void (*)(int);
  const auto hold = reinterpret_cast<Hold>(dlsym(dlopen(GC3_FAKE_CUDA_LIBRARY, RTLD_NOW), "hold_next_copy"));
  REQUIRE((hold != nullptr));
  Ranks ranks(line(), 0.5, 1);
  std::iota(ranks.data[0].begin(), ranks.data[0].end(), 0);
  std::vector<std::int32_t> other(Ranks::kMost, -1);
  hold(1);  // the copy by which rank 2 takes the first message out of the only slot
  CHECK(ranks.enqueue(2, Ranks::kMost).ok());
  CHECK(ranks.enqueue(0, Ranks::kMost).ok());
  CHECK(ranks.engines[0]
            ->enqueue(other.data(), other.data(), Ranks::kMost, DataType::int32, ReduceOp::sum, {},
                      ranks.streams[0].get())
            .ok());
  for (int i = 0; i < 2; ++i) CHECK(ranks.enqueue(1, Ranks::kMost).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ranks.engines[1]->abort();  // while it waits for the slot
  CHECK(ranks.engines[1]->synchronize().error().code == ErrorCode::Aborted);
  hold(0);
  const Status status = ranks.engines[2]->synchronize();
  CHECK((!status.ok() || ranks.data[2] == ranks.data[0]));
  CHECK(!status.ok());
}

TEST_CASE("copies: ranks with different calls do not take each other's data") {
  Ranks ranks(line(), 0.1);
  CHECK(ranks.enqueue(0, 100).ok());
  CHECK(ranks.enqueue(1, 101).ok());
  CHECK(ranks.enqueue(2, 101).ok());
  CHECK(ranks.engines[0]->synchronize().ok());
  for (const std::uint32_t r : {1U, 2U}) CHECK(ranks.engines[r]->synchronize().error().code == ErrorCode::Timeout);
}

TEST_CASE("copies: a dependency that never ends is named, and an engine with all ranks can be used again") {
  const auto shared = runtime();
  auto engine = Engine::create(shared, ring_allgather(3, false), {0}, {0, 0, 0.1}).value();
  testing::Buffers buffers(engine->plan().collective, 10, DataType::int32, ReduceOp::sum);
  engine->abort();
  CHECK(engine->enqueue(buffers.call(), {nullptr}).error().code == ErrorCode::Aborted);
  check_run(*engine, 1000);
  Ranks ranks(ring_allgather(3, false), 0.1);
  for (auto& d : ranks.data) d.resize(3 * Ranks::kMost);
  CHECK(ranks.engines[1]
            ->enqueue(ranks.data[0].data(), ranks.data[1].data(), 10, DataType::int32, ReduceOp::sum, {},
                      ranks.streams[1].get())
            .ok());
  const std::string text = ranks.engines[1]->synchronize().error().str();
  CHECK(text.find("rank 1 threadblock 0 step 1 (s), tile 0 of 1, waits for rank 1 threadblock 1 step 1") !=
        std::string::npos);
  CHECK(text.find("rank 1 threadblock 1 step 1 (r), tile 0 of 1, waits for a message from rank 0") !=
        std::string::npos);
}

}  // namespace
}  // namespace gc3::cuda
