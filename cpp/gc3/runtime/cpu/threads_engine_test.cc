#include "gc3/runtime/cpu/threads_engine.h"

#include <doctest/doctest.h>

#include "gc3/runtime/cpu/test_reference.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3::cpu {
namespace {

using model::CollectiveKind;
using model::Protocol;
using testing::check_run;
using testing::DataType;
using testing::in;
using testing::kAllOps;
using testing::kAllProtocols;
using testing::kAllTypes;
using testing::make_engine;
using testing::out;
using testing::ProgramBuilder;
using testing::ReduceOp;
using testing::scratch;

EngineOptions with(std::uint32_t slots, std::uint64_t slot_bytes, std::uint32_t workers = 2) {
  EngineOptions options;
  options.slots = slots;
  options.slot_bytes = slot_bytes;
  options.workers = workers;
  return options;
}

TEST_CASE("every type, operation and protocol, with fused and with separate steps") {
  for (const Protocol protocol : kAllProtocols) {
    for (const bool ring : {true, false}) {
      const auto program =
          ring ? testing::ring_allreduce(4, false, protocol) : testing::allpairs_allreduce(4, false, protocol);
      const auto engine = make_engine(program, with(0, 0));
      for (const DataType type : kAllTypes) {
        for (const ReduceOp op : kAllOps) {
          if (!testing::takes(op, type)) continue;
          for (const std::size_t count : {1, 64, 1009}) check_run(*engine, count, type, op);
        }
      }
    }
  }
}

TEST_CASE("any count, few and many slots, small slots that need many tiles") {
  for (const Protocol protocol : kAllProtocols) {
    for (const bool ring : {true, false}) {
      const auto program =
          ring ? testing::ring_allreduce(3, false, protocol) : testing::allpairs_allreduce(3, false, protocol);
      for (const std::uint32_t slots : {1U, 2U, 8U}) {
        if (slots < program.slots) continue;
        // One line of LL128; a few elements; more than the largest message of this test.
        for (const std::uint64_t slot_bytes : {128U, 384U, 65536U}) {
          const auto engine = make_engine(program, with(slots, slot_bytes));
          for (const std::size_t count : {0, 1, 2, 3, 7, 64, 1009}) {
            CAPTURE(model::name_of(protocol));
            CAPTURE(slots);
            CAPTURE(slot_bytes);
            check_run(*engine, count, DataType::float32);
            check_run(*engine, count, DataType::int8, ReduceOp::max);
          }
        }
      }
    }
  }
}

TEST_CASE("slots of a single element work") {
  const auto simple = make_engine(testing::ring_allreduce(3, false, Protocol::Simple), with(2, 8));
  check_run(*simple, 50, DataType::float64);
  const auto ll = make_engine(testing::ring_allreduce(3, false, Protocol::LL), with(2, 16));
  check_run(*ll, 50, DataType::float64);
}

TEST_CASE("in place and out of place, with one to eight ranks") {
  for (const Protocol protocol : kAllProtocols) {
    for (const bool in_place : {false, true}) {
      for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U}) {
        check_run(*make_engine(testing::ring_allreduce(ranks, in_place, protocol)), 1009);
        check_run(*make_engine(testing::allpairs_allreduce(ranks, in_place, protocol)), 1009);
      }
    }
  }
}

// AllGather and ReduceScatter on a ring; their in-place forms use only the larger buffer.
ir::Program ring_allgather(std::uint32_t ranks, bool in_place, Protocol protocol) {
  ProgramBuilder b(CollectiveKind::allgather, ranks, 1, in_place, protocol);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    b.tb(r, (r + 1) % ranks, (r + ranks - 1) % ranks);
    if (!in_place) b.step(ir::Opcode::copy, in(0), out(r));
    b.send(in_place ? out(r) : in(0));
    for (std::uint32_t k = 1; k + 1 < ranks; ++k) {
      b.step(ir::Opcode::recv_copy_send, in(0), out((r + ranks - k) % ranks));
    }
    b.recv(out((r + 1) % ranks));
  }
  return b.build();
}

ir::Program ring_reducescatter(std::uint32_t ranks, bool in_place, Protocol protocol) {
  ProgramBuilder b(CollectiveKind::reducescatter, ranks, 1, in_place, protocol);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    b.tb(r, (r + 1) % ranks, (r + ranks - 1) % ranks);
    b.send(in((r + ranks - 1) % ranks));
    for (std::uint32_t k = 2; k < ranks; ++k) {
      b.step(ir::Opcode::recv_reduce_send, in((r + ranks - k) % ranks), in(0));
    }
    b.step(ir::Opcode::recv_reduce_copy, in(r), in_place ? in(r) : out(0));
  }
  return b.build();
}

TEST_CASE("collectives whose buffers differ in size") {
  for (const Protocol protocol : kAllProtocols) {
    for (const bool in_place : {false, true}) {
      for (const std::size_t count : {1, 7, 1000}) {
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
          check_run(*make_engine(ring_allgather(4, in_place, protocol)), count, DataType::float16, op);
          check_run(*make_engine(ring_reducescatter(4, in_place, protocol)), count, DataType::float16, op);
        }
      }
    }
  }
}

TEST_CASE("ranks that have no buffer pass null") {
  ProgramBuilder b(CollectiveKind::broadcast, 3, 2, false, Protocol::Simple, 1);
  b.tb(1, 0);
  b.send(in(0), 2);
  b.tb(1, 2);
  b.send(in(0), 2);
  b.tb(1);
  b.step(ir::Opcode::copy, in(0), out(0), 2);
  for (const std::uint32_t r : {0U, 2U}) {
    b.tb(r, ir::kNoRank, 1);
    b.recv(out(0), 2);
  }
  const auto engine = make_engine(b.build());
  for (const std::size_t count : {0, 1, 2, 3, 101}) check_run(*engine, count);
}

TEST_CASE("a transfer of several chunks, contiguous or not") {
  for (const Protocol protocol : kAllProtocols) {
    for (const std::uint32_t chunks : {1U, 2U, 5U}) {
      const auto program = testing::direct_alltoall(3, chunks, protocol);
      for (const std::uint64_t slot_bytes : {128U, 4096U}) {
        const auto engine = make_engine(program, with(2, slot_bytes));
        for (const std::size_t count : {0, 1, 4, 5, 10, 11, 999, 1000}) {
          check_run(*engine, count, DataType::int8);
          check_run(*engine, count, DataType::float64);
        }
      }
    }
  }
}

// Rank 0 sends its whole input, which spans two blocks, in one transfer; rank 1 stores it.
TEST_CASE("a transfer across the end of a block") {
  model::CustomCollective data;
  data.name = "pair";
  data.input_chunks = {6, 6};
  data.output_chunks = {0, 6};
  data.alias = {std::nullopt, std::nullopt};
  for (std::uint32_t i = 0; i < 6; ++i) {
    data.begin.push_back(i);
    data.terms.push_back({0, i});
  }
  data.begin.push_back(6);
  const auto collective = model::Collective::custom(data, 2, 3, false);
  REQUIRE(collective.ok());
  for (const Protocol protocol : kAllProtocols) {
    ProgramBuilder b(collective.value(), protocol);
    b.tb(0, 1);
    b.send(in(1), 4);
    b.send(in(0), 1);
    b.send(in(5), 1);
    b.tb(1, ir::kNoRank, 0);
    b.recv(out(1), 4);
    b.recv(out(0), 1);
    b.recv(out(5), 1);
    const ir::Program program = b.build();
    for (const std::uint64_t slot_bytes : {256U, 65536U}) {
      const auto engine = make_engine(program, with(2, slot_bytes));
      for (const std::size_t count : {0, 1, 2, 3, 4, 5, 100, 101}) check_run(*engine, count, DataType::int32);
    }
  }
}

// Chunks are stored in between at positions of another length: chunk 0 of rank 0 in the last, shorter output chunk of
// rank 1, from which it is sent on.
ir::Program detour(bool in_place, Protocol protocol) {
  ProgramBuilder b(CollectiveKind::allgather, 2, 2, in_place, protocol);
  b.tb(0, 1, 1);
  if (!in_place) b.step(ir::Opcode::copy, in(0), out(0), 2);
  b.send(out(0));
  b.send(out(1));
  b.recv(out(2), 2);
  b.tb(1, 0, 0);
  if (!in_place) b.step(ir::Opcode::copy, in(0), out(2), 2);
  b.recv(out(1));
  b.step(ir::Opcode::copy, out(1), out(0));
  b.recv(out(1));
  b.send(out(2), 2);
  return b.build();
}

TEST_CASE("data that is stored in a shorter chunk in between is not truncated") {
  for (const Protocol protocol : kAllProtocols) {
    for (const bool in_place : {false, true}) {
      const auto engine = make_engine(detour(in_place, protocol));
      CHECK(engine->plan().moves_between_classes);
      for (const std::size_t count : {0, 1, 2, 3, 7, 1001}) {
        check_run(*engine, count, DataType::int8);
        check_run(*engine, count, DataType::float64);
      }
    }
  }
}

TEST_CASE("threads: in place, only the part of the input that is the output is written") {
  for (const Protocol protocol : kAllProtocols) {
    for (const std::uint32_t chunks : {1U, 3U}) {
      const auto engine = make_engine(testing::busy_inputs(protocol, chunks));
      for (const std::size_t count : {0, 1, 2, 3, 100, 1001}) {
        check_run(*engine, count, DataType::int32);
        check_run(*engine, count, DataType::float64, ReduceOp::avg);
      }
    }
    const auto engine = make_engine(testing::busy_inputs_of_two_lengths(protocol));
    CHECK(engine->plan().moves_between_classes);
    for (const std::size_t count : {0, 1, 2, 3, 1001}) check_run(*engine, count, DataType::float32);
  }
}

TEST_CASE("an average divides the sum, in place as well") {
  for (const bool in_place : {false, true}) {
    const auto engine = make_engine(ring_reducescatter(3, in_place, Protocol::Simple));
    for (const DataType type : kAllTypes) {
      if (testing::takes(ReduceOp::avg, type)) check_run(*engine, 100, type, ReduceOp::avg);
    }
  }
}

TEST_CASE("a seed replays an interleaving, and every seed gives the right result") {
  const auto program = testing::allpairs_allreduce(3, false, Protocol::LL);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    EngineOptions options = with(1, 128);
    options.seed = seed;
    const auto engine = make_engine(program, options);
    CHECK(engine->workers() == 1);
    check_run(*engine, 200, DataType::float32);
  }
}

TEST_CASE("the same seed gives the same interleaving, another seed another one") {
  // Several threadblocks add to one element without an order between them, so the rounding errors show the order.
  ProgramBuilder b(CollectiveKind::allreduce, 1, 8, true, Protocol::Simple);
  for (std::uint32_t i = 1; i < 8; ++i) {
    b.tb(0);
    b.step(ir::Opcode::reduce, out(i), out(0));
  }
  const ir::Program program = b.build();
  const auto result = [&](std::uint64_t seed) {
    EngineOptions options;
    options.seed = seed;
    float x[8] = {1e8F, 1.25F, -1e8F, 3.5F, 1e7F, 0.3F, -1e7F, 17.0F};
    const void* inputs[] = {x};
    void* outputs[] = {x};
    const auto engine = make_engine(program, options);
    CHECK(engine->run({inputs, outputs, 8, DataType::float32, ReduceOp::sum}).ok());
    return x[0];
  };
  std::vector<float> first;
  std::vector<float> second;
  for (std::uint64_t seed = 0; seed < 20; ++seed) first.push_back(result(seed));
  for (std::uint64_t seed = 0; seed < 20; ++seed) second.push_back(result(seed));
  CHECK(first == second);
  CHECK(std::count(first.begin(), first.end(), first[0]) < 20);
}

TEST_CASE("timing runs the collective and returns a time for each iteration") {
  const auto engine = make_engine(testing::ring_allreduce(2, false, Protocol::Simple));
  testing::Buffers buffers(engine->plan().collective, 1000, DataType::float32, ReduceOp::sum);
  const auto seconds = engine->time(buffers.call(), 2, 5);
  REQUIRE(seconds.ok());
  REQUIRE(seconds.value().size() == 5);
  for (const double s : seconds.value()) CHECK(s > 0);
  CHECK(!buffers.difference().has_value());
}

}  // namespace
}  // namespace gc3::cpu
