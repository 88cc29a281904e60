// The engine and its kernels with the fake driver of tests/fake_cuda, which executes the device's code on the host.
#include "gc3/runtime/cuda/engine.h"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <thread>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/devices.h"
#include "gc3/runtime/cuda/arena_layout.h"
#include "gc3/runtime/cuda/rank_engine.h"
#include "gc3/runtime/cuda/test_engines.h"
#include "gc3/runtime/interp/test_programs.h"
#include "gc3/runtime/interp/test_reference.h"

namespace gc3::cuda {
namespace {

using model::Protocol;
using testing::allpairs_allreduce;
using testing::DataType;
using testing::direct_alltoall;
using testing::ReduceOp;
using testing::ring_allreduce;

TEST_CASE("every protocol and opcode, with 1, 2 and 8 slots, at sizes that divide and that do not") {
  for (const Protocol protocol : testing::kAllProtocols) {
    for (const std::uint32_t slots : {2U, 8U}) {
      for (const bool in_place : {false, true}) {
        const auto ring = make_engine(ring_allreduce(3, in_place, protocol), {slots, 4096, 30});
        const auto pairs = make_engine(allpairs_allreduce(3, in_place, protocol), {slots, 4096, 30});
        for (const std::size_t count : {0, 1, 2, 50, 999, 1000, 3000, 12288}) {
          CAPTURE(slots);
          check_run(*ring, count);
          check_run(*pairs, count);
        }
      }
    }
    const auto one_slot = make_engine(direct_alltoall(3, 5, protocol), {1, 4096, 30});
    for (const std::size_t count : {1, 4, 5, 333, 1000, 5000}) check_run(*one_slot, count);
  }
}

TEST_CASE("if receivers pull, the slots are in the sender's arena") {
  for (const Protocol protocol : {Protocol::Simple, Protocol::Pull}) {
    testing::ProgramBuilder b(model::CollectiveKind::alltonext, 2, 1, false, protocol);
    b.tb(0, 1);
    b.send(testing::in(0));
    b.tb(1, ir::kNoRank, 0);
    b.recv(testing::out(0));
    const auto plan = interp::Plan::create(b.build());
    REQUIRE_MESSAGE(plan.ok(), plan.error().str());
    const auto geometry = choose_geometry(plan.value(), 2, 4096).value();
    const auto layout = ArenaLayout::create(plan.value(), geometry).value();
    const bool pulls = protocol == Protocol::Pull;
    CHECK((layout.bytes[0] > geometry.slots_bytes()) == pulls);
    CHECK((layout.bytes[1] > geometry.slots_bytes()) == !pulls);
    std::vector<std::uint8_t> memory(layout.bytes[0] + layout.bytes[1]);
    const std::vector<std::uint8_t*> arenas = {memory.data(), memory.data() + layout.bytes[0]};
    interp::Task sender;
    interp::Task receiver;
    layout.connect(plan.value().threadblocks[0], arenas, sender);
    layout.connect(plan.value().threadblocks[1], arenas, receiver);
    CHECK(sender.send.slots == receiver.recv.slots);
    CHECK((sender.send.slots < arenas[1]) == pulls);
    CHECK(sender.send.arrivals == receiver.recv.arrivals);
  }
  for (const Protocol protocol : {Protocol::Pull, Protocol::Copy}) {
    const auto exchange = make_engine(direct_alltoall(3, 2, protocol), {2, 4096, 30});
    for (const std::size_t count : {1, 333, 5000}) check_run(*exchange, count);
  }
  check_run(*make_engine(ring_allreduce(3, true, Protocol::Pull), {2, 4096, 30}), 12'288);
}

TEST_CASE("every type and operation") {
  for (const Protocol protocol : testing::kAllProtocols) {
    const auto engine = make_engine(ring_allreduce(2, false, protocol));
    for (const DataType type : testing::kAllTypes) {
      for (const ReduceOp op : testing::kAllOps) {
        if (!testing::takes(op, type)) continue;
        CAPTURE(model::name_of(type));
        CAPTURE(model::name_of(op));
        check_run(*engine, 1001, type, op);
      }
    }
  }
}

TEST_CASE("scratch, several channels, and data that moves between chunks of different length") {
  for (const Protocol protocol : testing::kAllProtocols) {
    check_run(*make_engine(ring_allreduce(4, false, protocol, 2)), 4097, DataType::float32);
    // A copy from one chunk position to another: runs on padded copies if the count is not divisible.
    testing::ProgramBuilder b(model::CollectiveKind::alltoall, 2, 3, false, protocol);
    for (std::uint32_t r = 0; r < 2; ++r) {
      b.scratch_chunks(r, 6);
      b.tb(r, 1 - r, 1 - r);
      for (std::uint32_t c = 0; c < 3; ++c) b.step(ir::Opcode::copy, testing::in(r * 3 + c), testing::scratch(c + r));
      for (std::uint32_t c = 0; c < 3; ++c) b.step(ir::Opcode::copy, testing::scratch(c + r), testing::out(r * 3 + c));
      b.send(testing::in((1 - r) * 3), 3);
      b.recv(testing::out((1 - r) * 3), 3);
    }
    const auto engine = make_engine(b.build());
    for (const std::size_t count : {1, 3, 4, 100, 101}) check_run(*engine, count, DataType::float64);
  }
}

TEST_CASE("of an input, in place, only the part that is the output is written") {
  for (const Protocol protocol : testing::kAllProtocols) {
    const auto whole = make_engine(testing::busy_inputs(protocol, 3));
    const auto padded = make_engine(testing::busy_inputs_of_two_lengths(protocol));
    for (const std::size_t count : {0, 1, 2, 3, 1001}) {
      check_run(*whole, count, DataType::float64, ReduceOp::avg);
      check_run(*padded, count);
    }
  }
}

TEST_CASE("buffers of the host, timed one by one and in a graph") {
  const auto engine = make_engine(ring_allreduce(3, true, Protocol::LL));
  testing::Buffers buffers(engine->plan().collective, 100, DataType::int32, ReduceOp::max);
  const auto times = engine->time(buffers.call(), 1, 4);
  REQUIRE_MESSAGE(times.ok(), times.error().str());
  CHECK(times.value().size() == 4);
  CHECK(!buffers.difference().has_value());  // repeating max changes nothing
  const auto replayed = engine->time_graph(buffers.call(), 0, 50);
  REQUIRE_MESSAGE(replayed.ok(), replayed.error().str());
  CHECK(replayed.value().size() == 50);
  CHECK(!buffers.difference().has_value());
  testing::Buffers again(engine->plan().collective, 100, DataType::int32, ReduceOp::sum);
  CHECK(engine->run(again.call()).ok());
  CHECK(!again.difference().has_value());
  CHECK(engine->record(again.call(), 100).error().code == ErrorCode::BadOption);
}

TEST_CASE("the flags of LL come round: many short messages through few slots") {
  for (const Protocol protocol : {Protocol::LL, Protocol::LL128}) {
    const auto engine = make_engine(ring_allreduce(2, true, protocol), {2, 4096, 30});
    testing::Buffers buffers(engine->plan().collective, 4, DataType::int32, ReduceOp::max);
    for (int launches = 0; launches < 3; ++launches) {
      const auto replayed = engine->time_graph(buffers.call(), 0, 100);
      REQUIRE_MESSAGE(replayed.ok(), replayed.error().str());
    }
    CHECK(!buffers.difference().has_value());
  }
}

TEST_CASE("calls on two streams, and two engines side by side") {
  const auto shared = runtime();
  const auto device = shared->device(0).value();
  Stream first = Stream::create(device).value();
  Stream second = Stream::create(device).value();
  auto a = Engine::create(shared, ring_allreduce(3, false, Protocol::Simple), {0}, {}).value();
  auto b = Engine::create(shared, allpairs_allreduce(3, false, Protocol::LL128), {0}, {}).value();
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

// Rank 1 receives a message that no rank sends.
ir::Program waits_for_ever(Protocol protocol) {
  testing::ProgramBuilder b(model::CollectiveKind::allreduce, 2, 1, true, protocol);
  for (std::uint32_t r = 0; r < 2; ++r) {
    b.tb(r, 1 - r, 1 - r);
    b.recv(testing::out(0));
    b.send(testing::out(0));
  }
  return b.build();
}

TEST_CASE("a wait that lasts too long is an error that says who waits, and the engine can be used again") {
  for (const Protocol protocol : testing::kAllProtocols) {
    const auto engine = make_engine(waits_for_ever(protocol), {0, 0, 0.05});
    testing::Buffers buffers(engine->plan().collective, 10, DataType::int32, ReduceOp::sum);
    for (int i = 0; i < 2; ++i) {
      CHECK(engine->enqueue(buffers.call(), {nullptr}).ok());
      const Status status = engine->synchronize();
      REQUIRE(!status.ok());
      CHECK(status.error().code == ErrorCode::Timeout);
      CHECK(status.error().str().find(
                "rank 1 threadblock 0 step 0 (r), tile 0 of 1, waits for a message from rank 0") != std::string::npos);
    }
  }
}

TEST_CASE("a run can be aborted, and what is queued behind it ends at once") {
  const auto engine = make_engine(waits_for_ever(Protocol::LL), {0, 0, 600});
  testing::Buffers buffers(engine->plan().collective, 10, DataType::int32, ReduceOp::sum);
  for (int i = 0; i < 3; ++i) CHECK(engine->enqueue(buffers.call(), {nullptr}).ok());
  int asked = 0;
  const Status status = engine->synchronize([&] { return ++asked > 2; });
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::Aborted);
  CHECK(engine->enqueue(buffers.call(), {nullptr}).ok());
  engine->abort();
  CHECK(engine->synchronize().error().code == ErrorCode::Aborted);
}

TEST_CASE("a graph that fails on a stream of its user's is over before the engine starts afresh") {
  const auto shared = runtime();
  const auto device = shared->device(0).value();
  const Stream stream = Stream::create(device).value();
  const auto engine = Engine::create(shared, waits_for_ever(Protocol::LL128), {0}, {0, 0, 0.05}).value();
  testing::Buffers buffers(engine->plan().collective, 10, DataType::int32, ReduceOp::sum);
  const Current current(*device);
  const Driver& driver = device->driver();
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  REQUIRE(driver->begin_capture(stream.get(), kCaptureRelaxed) == kCudaSuccess);
  REQUIRE(engine->enqueue(buffers.call(), {stream.get()}).ok());
  REQUIRE(driver->end_capture(stream.get(), &graph) == kCudaSuccess);
  REQUIRE(driver->instantiate(&executable, graph, 0) == kCudaSuccess);
  for (int i = 0; i < 2; ++i) {
    for (int launches = 0; launches < 3; ++launches) REQUIRE(driver->launch_graph(executable, stream.get()) == 0);
    Status status;
    while (status.ok()) status = engine->synchronize();
    CHECK(status.error().code == ErrorCode::Timeout);
    CHECK(status.error().str().find("waits for a message from rank 0") != std::string::npos);
    CHECK(engine->synchronize().ok());
  }
  driver->destroy_graph_exec(executable);
  driver->destroy_graph(graph);
}

TEST_CASE("after a failure the counters are at the beginning: a good call follows a bad one") {
  const auto engine = make_engine(ring_allreduce(2, false, Protocol::LL), {0, 0, 0.2});
  check_run(*engine, 100);
  engine->abort();
  testing::Buffers buffers(engine->plan().collective, 10, DataType::int32, ReduceOp::sum);
  const Status status = engine->enqueue(buffers.call(), {nullptr});
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::Aborted);
  for (const std::size_t count : {10, 1000}) check_run(*engine, count);
}

TEST_CASE("too many threadblocks are an error before the launch, with the numbers") {
  const auto engine = make_engine(ring_allreduce(8, false, Protocol::Simple, 40));
  testing::Buffers buffers(engine->plan().collective, 320, DataType::int32, ReduceOp::sum);
  const Status status = engine->enqueue(buffers.call(), {nullptr});
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::NotResident);
  CHECK(status.error().message.find("holds 264 threadblocks of 512 threads at once (132 multiprocessors, 2 on each); "
                                    "its 8 ranks have 320") != std::string::npos);
}

// tests/cuda/test_cuda_communicator.py tests that ranks of several processes work together.
TEST_CASE("a rank's engine checks what it is given") {
  const auto shared = runtime();
  const ir::Program program = ring_allreduce(2, true, Protocol::LL);
  CHECK(RankEngine::create(shared, program, 2, 0, {}).error().code == ErrorCode::RankOutOfRange);
  auto engine = RankEngine::create(shared, program, 1, 0, {}).value();
  ArenaHandle handle = engine->handle().value();
  ++handle.process[1];  // of another process, although it is of this one, whose memory cannot be opened
  CHECK(engine->connect({handle}).error().code == ErrorCode::RankOutOfRange);
  CHECK(engine->connect({handle, handle}).error().code == ErrorCode::CudaFailed);
}

TEST_CASE("ranks that call with arrays of different types take nothing of each other, and say their types") {
  const auto shared = runtime();
  const ir::Program program = ring_allreduce(2, false, Protocol::LL);
  std::vector<std::unique_ptr<RankEngine>> ranks;
  std::vector<ArenaHandle> handles;
  for (const std::uint32_t r : {0U, 1U}) {
    ranks.push_back(RankEngine::create(shared, program, r, 0, {0, 0, 0.2}).value());
    handles.push_back(ranks.back()->handle().value());
  }
  const std::vector<std::int32_t> in(10, 1);
  std::vector<std::int32_t> out(10, 7);
  for (const auto& rank : ranks) REQUIRE(rank->connect(handles).ok());
  for (const auto& rank : ranks) {
    const DataType type = rank->rank() == 0 ? DataType::float32 : DataType::int32;
    REQUIRE(rank->enqueue(in.data(), out.data(), 10, type, ReduceOp::sum, {}, nullptr).ok());
  }
  const std::string first = ranks[0]->synchronize().error().str();
  CHECK(first.find("the last call of rank 0 is of blocks of 10 float32 (sum)") != std::string::npos);
  const std::string second = ranks[1]->synchronize().error().str();
  CHECK(second.find("the last call of rank 1 is of blocks of 10 int32 (sum)") != std::string::npos);
  CHECK(out == std::vector<std::int32_t>(10, 7));
}

TEST_CASE("options and devices that make no sense") {
  const auto shared = runtime();
  const ir::Program program = ring_allreduce(2, false, Protocol::LL128);
  CHECK(Engine::create(shared, program, {7}, {}).error().code == ErrorCode::BadDevice);
  CHECK(Engine::create(shared, program, {}, {}).error().code == ErrorCode::BadDevice);
  CHECK(Engine::create(shared, program, {0, 0}, {}).error().code == ErrorCode::BadDevice);
  CHECK(Engine::create(shared, program, {0}, {0, 100, 30}).error().code == ErrorCode::BadOption);
  CHECK(Engine::create(shared, program, {0}, {0, 0, -1}).error().code == ErrorCode::BadOption);
  CHECK(Engine::create(shared, program, {0}, {8, std::uint64_t{1} << 34U, 30}).error().code == ErrorCode::OutOfMemory);
  CHECK(Runtime::open("libno-such-driver.so", {}).error().code == ErrorCode::NoCudaDriver);
  auto without = Runtime::open(GC3_FAKE_CUDA_LIBRARY, {"libno-such-compiler.so"}).value();
  auto engine = Engine::create(without, program, {0}, {}).value();
  testing::Buffers buffers(engine->plan().collective, 10, DataType::int32, ReduceOp::sum);
  CHECK(engine->enqueue(buffers.call(), {nullptr}).error().code == ErrorCode::NoKernelCompiler);
  CHECK(engine->enqueue(buffers.call(), {}).error().code == ErrorCode::BadDevice);
}

}  // namespace
}  // namespace gc3::cuda
