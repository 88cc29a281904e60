// Long and crowded runs.
#include <doctest/doctest.h>

#include <thread>

#include "gc3/runtime/cpu/test_reference.h"
#include "gc3/runtime/cpu/threads_engine.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3::cpu {
namespace {

using model::Protocol;
using testing::check_run;
using testing::DataType;
using testing::make_engine;
using testing::ReduceOp;

TEST_CASE("ten thousand runs of one engine need no reset in between") {
  EngineOptions options;
  options.workers = 2;
  for (const Protocol protocol : testing::kAllProtocols) {
    const auto engine = make_engine(testing::ring_allreduce(2, false, protocol), options);
    testing::Buffers buffers(engine->plan().collective, 5, DataType::int32, ReduceOp::sum);
    int failures = 0;
    for (int i = 0; i < (testing::kSanitized ? 1'000 : 10'000); ++i) {
      if (!engine->run(buffers.call()).ok()) ++failures;
    }
    CHECK(failures == 0);
    CHECK(!buffers.difference().has_value());
    // Other sizes and types in turn: data that one run leaves in the FIFOs must not affect the next.
    for (std::size_t i = 0; i < 100; ++i)
      check_run(*engine, i * 37 % 300, testing::kAllTypes[i % std::size(testing::kAllTypes)]);
  }
}

TEST_CASE("eight ranks of sixteen threadblocks share two workers") {
  for (const Protocol protocol : testing::kAllProtocols) {
    const ir::Program program = testing::ring_allreduce(8, false, protocol, 16);
    for (const std::uint32_t workers : {1U, 2U, 8U}) {
      EngineOptions options;
      options.workers = workers;
      options.slots = 2;
      options.slot_bytes = 256;
      const auto engine = make_engine(program, options);
      CHECK(engine->workers() == workers);
      for (int i = 0; i < (testing::kSanitized ? 2 : 3); ++i) check_run(*engine, 20011, DataType::int32);
    }
  }
}

TEST_CASE("calls from several threads run one after the other") {
  const auto engine = make_engine(testing::allpairs_allreduce(3, false, Protocol::LL128));
  int wrong[4] = {};
  std::vector<std::thread> callers;
  for (std::size_t t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      testing::Buffers buffers(engine->plan().collective, 100 + 50 * t, DataType::float32, ReduceOp::sum);
      for (int i = 0; i < 50; ++i) {
        if (!engine->run(buffers.call()).ok() || buffers.difference().has_value()) ++wrong[t];
      }
    });
  }
  for (std::thread& c : callers) c.join();
  for (const int w : wrong) CHECK(w == 0);
}

TEST_CASE("engines come and go") {
  const ir::Program program = testing::ring_allreduce(4, true, Protocol::Simple);
  for (int i = 0; i < 50; ++i) {
    EngineOptions options;
    options.workers = 4;
    const auto unused = make_engine(program, options);
    check_run(*make_engine(program, options), 100);
  }
}

}  // namespace
}  // namespace gc3::cpu
