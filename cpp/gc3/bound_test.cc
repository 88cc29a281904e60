// Programs that compute, with functions of C++.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/files.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/gc3.h"
#include "gc3/runtime/cpu/test_ranks.h"

namespace gc3 {
namespace {

const std::string kComputes = "gc3_bound_test.gc3";

// Each rank gets the product of the other one's x and w.
constexpr const char* kText = R"(program "pass_on" version 1
collective custom "products" ranks 2 chunks 1
  tensor "x" in length 0 chunks 1 1
  tensor "w" in length 1 chunks 1 1
  tensor "y" out length 2 chunks 1 1
  operation "product"
  call 0 "product" 0 of 1:0, 1:1
  call 1 "product" 0 of 0:0, 0:1
  rank 0 in 2 out 1
    out[0] = =0
  rank 1 in 2 out 1
    out[0] = =1
protocol Simple instances 1 slots 1
lengths "x" "w" "y"

rank 0 scratch 1
  tb 0 channel 0 send 1
    0 send sc[0] after (2:0)
  tb 1 channel 0 recv 1
    0 recv -> out[0]
  tb 2 channel 0
    0 apply "product" in[0] in[1] -> sc[0]:2 signals

rank 1 scratch 1
  tb 0 channel 0 send 0
    0 send sc[0] after (2:0)
  tb 1 channel 0 recv 0
    0 recv -> out[0]
  tb 2 channel 0
    0 apply "product" in[0] in[1] -> sc[0]:2 signals
)";

Status multiply(const std::vector<Chunk>& operands, const std::vector<Chunk>& results) {
  const auto* const x = static_cast<const float*>(operands[0].data);
  const float w = *static_cast<const float*>(operands[1].data);
  auto* const y = static_cast<float*>(results[0].data);
  for (std::size_t i = 0; i < results[0].count; ++i) y[i] = w * x[i];
  return {};
}

void run_two(const std::function<bool(Communicator& comm, std::uint32_t rank)>& body) {
  std::ofstream(kComputes) << kText;
  testing::run_ranks(2, [&](std::uint32_t rank) {
    Result<Communicator> made = init({.rank = rank, .size = 2, .job = "bound test " + std::to_string(getppid())});
    return testing::expect(made.ok(), rank, "init") && body(made.value(), rank);
  });
  std::remove(kComputes.c_str());
}

bool says(const Status& status, ErrorId code, const std::string& text, std::uint32_t rank) {
  const std::string found = status.ok() ? "ok" : status.error().str();
  return testing::expect(!status.ok() && status.error().code == code && found.find(text) != std::string::npos, rank,
                         text + ": " + found);
}

TEST_CASE("a program that computes calls functions of C++") {
  run_two([](Communicator& comm, std::uint32_t rank) {
    Result<Bound> made = comm.bind(kComputes, {{"product", multiply}});
    if (!testing::expect(made.ok(), rank, made.ok() ? "" : made.error().str())) return false;
    for (const std::size_t count : {3, 1000, 0, 3}) {
      std::vector<float> x(count, static_cast<float>(rank + 1));
      std::vector<float> y(count, -1);
      float w = 10;
      const Status status = made.value().run({{"x", x.data()}, {"w", &w}, {"y", y.data()}},
                                             {{"x", count}, {"w", 1}, {"y", count}}, DataType::float32);
      if (!testing::expect(status.ok(), rank, status.ok() ? "" : status.error().str())) return false;
      const std::vector<float> expected(count, static_cast<float>(10 * (2 - rank)));
      if (!testing::expect(y == expected, rank, "count " + std::to_string(count))) return false;
    }
    return true;
  });
}

TEST_CASE("what a function of C++ says is the error of the call on all ranks") {
  for (const bool throws : {false, true}) {
    run_two([throws](Communicator& comm, std::uint32_t rank) {
      const Operation fails = [&](const std::vector<Chunk>& operands, const std::vector<Chunk>& results) -> Status {
        if (rank == 0) return multiply(operands, results);
        if (throws) throw std::runtime_error("no such weights");
        return Diagnostic(ErrorCode::BadArgument, "no such weights");
      };
      Result<Bound> made = comm.bind(kComputes, {{"product", fails}});
      float x = 1;
      float w = 2;
      float y = 0;
      const std::map<std::string, void*> tensors = {{"x", &x}, {"w", &w}, {"y", &y}};
      const Status status = made.value().run(tensors, {{"x", 1}, {"w", 1}, {"y", 1}}, DataType::float32);
      return says(status, ErrorCode::ComputeFailed, "product of rank 1: no such weights", rank) &&
             testing::expect(!comm.barrier().ok(), rank, "is given up");
    });
  }
}

TEST_CASE("wrong names, counts and files of programs that compute are refused, and told to the others") {
  run_two([](Communicator& comm, std::uint32_t rank) {
    if (rank == 1) return says(comm.barrier(), ErrorCode::CallsDiffer, "", rank);
    return says(comm.bind("no such file", {}).error(), ErrorCode::FileUnreadable, "no such file", rank);
  });
  using Wrong = std::pair<std::string, std::function<Status(Communicator&, Bound&, float*)>>;
  const Wrong wrongs[] = {
      {"counts: 'w' is missing",
       [](Communicator&, Bound& b, float* a) {
         return b.run({{"x", a}, {"w", a}}, {{"x", 1}, {"y", 1}}, DataType::float32);
       }},
      {"counts: there is no 'z'",
       [](Communicator&, Bound& b, float*) { return b.run({}, {{"z", 1}}, DataType::float32); }},
      {"'z' is no tensor",
       [](Communicator&, Bound& b, float* a) {
         return b.run({{"z", a}}, {{"x", 1}, {"w", 1}, {"y", 1}}, DataType::float32);
       }},
      {"rank 0 has no 'w'",
       [](Communicator&, Bound& b, float* a) {
         return b.run({{"x", a}}, {{"x", 1}, {"w", 1}, {"y", 1}}, DataType::float32);
       }},
      {"'w' and 'y' overlap",
       [](Communicator&, Bound& b, float* a) {
         float x = 0;
         return b.run({{"x", &x}, {"w", a}, {"y", a}}, {{"x", 1}, {"w", 1}, {"y", 1}}, DataType::float32);
       }},
      {"'product' has no function",
       [](Communicator& c, Bound&, float*) { return Status(c.bind(kComputes, {}).error()); }},
      {"'other' is no operation",
       [](Communicator& c, Bound&, float*) {
         return Status(c.bind(kComputes, {{"product", multiply}, {"other", multiply}}).error());
       }},
  };
  for (const auto& [text, wrong] : wrongs) {
    run_two([&](Communicator& comm, std::uint32_t rank) {
      Result<Bound> made = comm.bind(kComputes, {{"product", multiply}});
      if (!testing::expect(made.ok(), rank, made.ok() ? "" : made.error().str())) return false;
      float one = 1;
      if (rank == 1) return says(comm.barrier(), ErrorCode::CallsDiffer, text, rank);
      const Status status = wrong(comm, made.value(), &one);
      return testing::expect(!status.ok() && status.error().str().find(text) != std::string::npos, rank,
                             text + ": " + (status.ok() ? "ok" : status.error().str()));
    });
  }
}

}  // namespace
}  // namespace gc3
