// Refused input, aborts and timeouts of the engine, and that it works again afterwards.
#include <doctest/doctest.h>

#include <limits>
#include <thread>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/runtime/core/waiting/test_process.h"
#include "gc3/runtime/cpu/test_reference.h"
#include "gc3/runtime/cpu/threads_engine.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3::cpu {
namespace {

using model::CollectiveKind;
using model::Protocol;
using testing::check_run;
using testing::DataType;
using testing::in;
using testing::make_engine;
using testing::out;
using testing::ProgramBuilder;
using testing::ReduceOp;
using testing::scratch;

// Both ranks receive before they send; with `count` 0 no data moves and no step waits.
ir::Program everyone_receives_first(Protocol protocol) {
  ProgramBuilder b(CollectiveKind::allreduce, 2, 1, false, protocol);
  b.scratch_chunks(0, 1).scratch_chunks(1, 1);
  for (const std::uint32_t r : {0U, 1U}) {
    b.tb(r, 1 - r, 1 - r);
    b.recv(out(0));
    b.send(in(0));
    b.tb(r);
    b.step(ir::Opcode::reduce, in(0), out(0), 1, {{0, 0}});
  }
  return b.build();
}

Status run(ThreadsEngine& engine, std::size_t count = 100) {
  testing::Buffers buffers(engine.plan().collective, count, DataType::int32, ReduceOp::sum);
  return engine.run(buffers.call());
}

ErrorId refusal(const ir::Program& program, const EngineOptions& options) {
  const auto engine = ThreadsEngine::create(program, options);
  REQUIRE(!engine.ok());
  return engine.error().code;
}

TEST_CASE("the deterministic mode finds a deadlock exactly and names every waiting threadblock") {
  for (const Protocol protocol : testing::kAllProtocols) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      EngineOptions options;
      options.seed = seed;
      const auto engine = make_engine(everyone_receives_first(protocol), options);
      const Status status = run(*engine);
      REQUIRE(!status.ok());
      CHECK(status.error().code == ErrorCode::RuntimeDeadlock);
      std::string text;
      for (const Note& n : status.error().notes) text += n.text + "\n";
      CHECK(text ==
            "rank 0 threadblock 0 step 0 (r), tile 0 of 1, waits for a message from rank 1 on channel 0\n"
            "rank 0 threadblock 1 step 0 (re), tile 0 of 1, waits for rank 0 threadblock 0 step 0 (r)\n"
            "rank 1 threadblock 0 step 0 (r), tile 0 of 1, waits for a message from rank 0 on channel 0\n"
            "rank 1 threadblock 1 step 0 (re), tile 0 of 1, waits for rank 1 threadblock 0 step 0 (r)\n");
    }
  }
}

TEST_CASE("too few slots deadlock, and the report says which slot is waited for") {
  // Each rank sends two messages before it receives any: fine with two slots, a deadlock with one.
  ProgramBuilder b(CollectiveKind::alltoall, 2, 2, false, Protocol::Simple);
  for (const std::uint32_t r : {0U, 1U}) {
    b.tb(r, 1 - r, 1 - r);
    b.send(in(2 * (1 - r)));
    b.send(in(2 * (1 - r) + 1));
    b.recv(out(2 * (1 - r)));
    b.recv(out(2 * (1 - r) + 1));
    b.tb(r);
    b.step(ir::Opcode::copy, in(2 * r), out(2 * r), 2);
  }
  const ir::Program program = b.build();
  EngineOptions options;
  options.slots = 1;
  options.workers = 1;  // a single worker detects a deadlock by itself
  const auto engine = make_engine(program, options);
  const Status status = run(*engine);
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::RuntimeDeadlock);
  REQUIRE(status.error().notes.size() == 2);
  CHECK(status.error().notes[0].text ==
        "rank 0 threadblock 0 step 1 (s), tile 0 of 1, waits for one of the 1 slots to rank 1 on channel 0 to become "
        "free");
  options.slots = 2;
  check_run(*make_engine(program, options), 100);
}

TEST_CASE("a run without progress ends at its deadline, and the engine stays usable") {
  EngineOptions options;
  options.timeout_s = 0.05;
  options.workers = 2;
  for (const Protocol protocol : testing::kAllProtocols) {
    const auto engine = make_engine(everyone_receives_first(protocol), options);
    for (int i = 0; i < 2; ++i) {
      const Status status = run(*engine);
      REQUIRE(!status.ok());
      CHECK(status.error().code == ErrorCode::Timeout);
      CHECK(status.error().notes.size() == 4);
      // A machine under load may begin its threads only after the deadline.
      Status empty = run(*engine, 0);
      for (int again = 0; again < 200 && !empty.ok(); ++again) empty = run(*engine, 0);
      CHECK(empty.ok());
    }
  }
}

TEST_CASE("a run does not count the time in which its process was stopped") {
  CHECK(core::testing::leaves_out_stops([] {
    EngineOptions options;
    options.timeout_s = 1;
    options.workers = 2;
    const auto engine = make_engine(everyone_receives_first(Protocol::Simple), options);
    const Status late = run(*engine);
    return !late.ok() && late.error().code == ErrorCode::Timeout;
  }));
}

TEST_CASE("an interrupted run returns, and the engine stays usable") {
  EngineOptions options;
  options.workers = 2;
  const auto engine = make_engine(everyone_receives_first(Protocol::LL), options);
  testing::Buffers buffers(engine->plan().collective, 100, DataType::int32, ReduceOp::sum);
  int asked = 0;
  const Status status = engine->run(buffers.call(), [&] { return ++asked == 2; });
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::Aborted);
  CHECK(asked == 2);
  CHECK(run(*engine, 0).ok());
}

TEST_CASE("another thread can abort a run") {
  EngineOptions options;
  options.workers = 2;
  const auto engine = make_engine(everyone_receives_first(Protocol::Simple), options);
  std::atomic<bool> over{false};
  // An abort before the run has begun has no effect, so it is repeated until it has.
  std::thread other([&] {
    while (!over.load()) {
      engine->abort();
      std::this_thread::yield();
    }
  });
  const Status status = run(*engine);
  over.store(true);
  other.join();
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::Aborted);
}

// Correct with two slots, and rank 0 sends two messages into the FIFO before it waits for rank 1.
ir::Program exchange(Protocol protocol) {
  ProgramBuilder b(CollectiveKind::alltoall, 2, 2, false, protocol);
  b.slots(2);
  for (const std::uint32_t r : {0U, 1U}) {
    b.tb(r, 1 - r, 1 - r);
    b.step(ir::Opcode::copy, in(2 * r), out(2 * r), 2);
    b.send(in(2 * (1 - r)));
    b.send(in(2 * (1 - r) + 1));
    b.recv(out(2 * (1 - r)));
    b.recv(out(2 * (1 - r) + 1));
  }
  return b.build();
}

TEST_CASE("messages of an aborted run do not leak into the next one") {
  for (const Protocol protocol : testing::kAllProtocols) {
    EngineOptions options;
    options.slot_bytes = 128;
    options.workers = 2;
    const auto engine = make_engine(exchange(protocol), options);
    // Long enough (thousands of tiles) to be aborted in the middle; if it is not, it must be right.
    testing::Buffers large(engine->plan().collective, 2000000, DataType::int32, ReduceOp::sum);
    for (int i = 0; i < 3; ++i) {
      std::atomic<bool> over{false};
      std::thread other([&] {
        while (!over.load()) {
          engine->abort();
          std::this_thread::yield();
        }
      });
      const Status status = engine->run(large.call());
      over.store(true);
      other.join();
      if (!status.ok()) CHECK(status.error().code == ErrorCode::Aborted);
      check_run(*engine, 1009);
    }
  }
}

TEST_CASE("options that cannot work are refused") {
  const ir::Program ring = testing::ring_allreduce(3, false, Protocol::Simple);
  EngineOptions options;
  options.slots = 1;
  CHECK(refusal(ring, options) == ErrorCode::BadOption);
  options = {};
  for (const double t :
       {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    options.timeout_s = t;
    CHECK(refusal(ring, options) == ErrorCode::BadOption);
  }
  options = {};
  options.slot_bytes = 127;
  CHECK(refusal(testing::ring_allreduce(3, false, Protocol::LL128), options) == ErrorCode::BadOption);
  options.slot_bytes = 15;
  CHECK(refusal(testing::ring_allreduce(3, false, Protocol::LL), options) == ErrorCode::BadOption);
}

TEST_CASE("slots that cannot hold one element of every chunk are refused by the call that needs them") {
  EngineOptions options;
  options.slot_bytes = 16;
  const auto engine = make_engine(testing::direct_alltoall(2, 4, Protocol::Simple), options);
  check_run(*engine, 100, DataType::int32);
  testing::Buffers buffers(engine->plan().collective, 100, DataType::float64, ReduceOp::sum);
  const Status status = engine->run(buffers.call());
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::BadOption);
}

TEST_CASE("default slots hold an element of every chunk, however many there are") {
  const auto engine = make_engine(testing::direct_alltoall(2, 5000, Protocol::LL));
  check_run(*engine, 5000, DataType::float64);
}

TEST_CASE("a request for more memory than available gives a diagnostic") {
  const ir::Program ring = testing::ring_allreduce(3, false, Protocol::Simple);
  EngineOptions options;
  options.slots = interp::kMaxSlots;
  options.slot_bytes = std::numeric_limits<std::uint64_t>::max() / 2;
  CHECK(refusal(ring, options) == ErrorCode::OutOfMemory);
  options.slots = interp::kMaxSlots + 1;
  CHECK(refusal(ring, options) == ErrorCode::BadOption);
  options.slots = 8;
  options.slot_bytes = std::uint64_t{1} << 45U;
  const auto engine = make_engine(ring, options);
  Status status = run(*engine);
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::OutOfMemory);

  ProgramBuilder b(CollectiveKind::allreduce, 1, 1, false, Protocol::Simple);
  b.scratch_chunks(0, 4000000000U);
  b.tb(0);
  b.step(ir::Opcode::copy, in(0), out(0));
  status = run(*make_engine(b.build()), 1000000);
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::OutOfMemory);

  const auto small = make_engine(ring);
  const std::vector<const void*> inputs(3, &options);
  const std::vector<void*> outputs(3, &options);
  status = small->run({inputs, outputs, std::numeric_limits<std::size_t>::max() / 2, DataType::float64, ReduceOp::sum});
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::OutOfMemory);
}

TEST_CASE("missing and misplaced buffers are refused") {
  const auto engine = make_engine(testing::ring_allreduce(2, false, Protocol::Simple));
  std::vector<float> memory(64);
  const auto code = [&](ThreadsEngine& e, std::vector<const void*> inputs, std::vector<void*> outputs) {
    const Status status = e.run({inputs, outputs, 8, DataType::float32, ReduceOp::sum});
    REQUIRE(!status.ok());
    return status.error().code;
  };
  float* m = memory.data();
  CHECK(code(*engine, {m}, {m + 8}) == ErrorCode::BadBuffer);
  CHECK(code(*engine, {m, nullptr}, {m + 8, m + 16}) == ErrorCode::BadBuffer);
  CHECK(code(*engine, {m, m + 8}, {m + 16, nullptr}) == ErrorCode::BadBuffer);
  const auto in_place = make_engine(testing::ring_allreduce(2, true, Protocol::Simple));
  CHECK(code(*in_place, {m, m + 8}, {m, m + 16}) == ErrorCode::BadBuffer);
}

}  // namespace
}  // namespace gc3::cpu
