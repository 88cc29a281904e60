#include "gc3/runtime/direct/job.h"

#include <doctest/doctest.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/model.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/base/mix64.h"
#include "gc3/ir/direct/test_direct.h"
#include "gc3/runtime/core/waiting/test_process.h"
#include "gc3/runtime/interp/test_reference.h"

namespace gc3::direct {
namespace {

namespace test = ir::direct::test;
using model::CollectiveKind;
using model::DataType;
using model::ReduceOp;
using testing::Buffers;

std::unique_ptr<Job> make_job(const Program& program, const JobOptions& options = {}) {
  auto job = Job::create(program, options);
  REQUIRE_MESSAGE(job.ok(), program.name, ": ", job.error().str());
  return std::move(job).value();
}

void check_call(Job& job, std::size_t count, DataType type, ReduceOp op) {
  Buffers buffers(job.program().collective, count, type, op);
  const Status status = job.run(buffers.call());
  REQUIRE_MESSAGE(status.ok(), job.program().name, ": ", status.error().str());
  const auto difference = buffers.difference();
  CHECK_MESSAGE(!difference.has_value(), job.program().name, ", ", model::name_of(op), ", count ", count, ": ",
                *difference);
}

// Whether each output of a rank is the sum of the inputs of call `call`. Inputs differ from call to call.
struct Sums {
  const model::Collective& collective;
  std::size_t count;
  std::vector<std::vector<std::uint64_t>> inputs, outputs;  // in place: one of them, by its rank
  std::vector<const void*> input_at;
  std::vector<void*> output_at;

  Sums(const model::Collective& c, std::size_t n) : collective(c), count(n) {
    for (std::uint32_t r = 0; r < c.ranks(); ++r) {
      inputs.emplace_back(c.input_blocks(r) * n);
      outputs.emplace_back(c.output_blocks(r) * n);
      output_at.push_back(outputs[r].data());
      input_at.push_back(c.in_place() ? outputs[r].data() : inputs[r].data());  // of an all-reduce
    }
    for (std::uint32_t r = 0; r < c.ranks(); ++r) fill(r, 0);
  }
  interp::Call call() const { return {input_at, output_at, count, DataType::uint64, ReduceOp::sum}; }
  static std::uint64_t input(std::uint32_t rank, std::uint32_t call, std::size_t i) {
    return mix64(mix64(rank * 1000003U + call) + i);
  }
  void fill(std::uint32_t rank, std::uint32_t call) {
    std::vector<std::uint64_t>& to = collective.in_place() ? outputs[rank] : inputs[rank];
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = input(rank, call, i);
  }
  bool right(std::uint32_t rank, std::uint32_t call) const {
    const std::uint32_t chunks = collective.chunks();
    const std::size_t length = (count + chunks - 1) / chunks;
    const auto first = [&](std::uint32_t c) { return c / chunks * count + std::min(count, c % chunks * length); };
    for (std::uint32_t c = 0; c < collective.output_chunks(rank); ++c) {
      const std::size_t end = c % chunks + 1 == chunks ? (c / chunks + 1) * count : first(c + 1);
      for (std::size_t i = first(c); i < end; ++i) {
        std::uint64_t sum = 0;
        for (const model::InputChunk& term : collective.expected_terms(rank, c)) {
          sum += input(term.rank, call, first(term.index) + i - first(c));
        }
        if (outputs[rank][i] != sum) return false;
      }
    }
    return true;
  }
};

// The calls after which an output was wrong, of all ranks.
std::vector<std::uint32_t> wrong_calls(const Program& program, std::size_t count, std::uint32_t calls,
                                       std::uint32_t workers) {
  const auto job = make_job(program, {.workers = workers, .timeout_s = 30, .pin = false});
  Sums sums(job->program().collective, count);
  std::mutex mutex;
  std::vector<std::uint32_t> wrong;
  const Status status = job->run_calls(sums.call(), calls, [&](std::uint32_t rank, std::uint32_t call) {
    if (!sums.right(rank, call)) {
      const std::lock_guard lock(mutex);
      wrong.push_back(call);
    }
    sums.fill(rank, call + 1);
  });
  REQUIRE_MESSAGE(status.ok(), program.name, ": ", status.error().str());
  return wrong;
}

TEST_CASE("direct programs: every type and operation, any count") {
  for (const Program& program : test::all_programs(4)) {
    const auto job = make_job(program, {.workers = 2});
    std::size_t turn = 0;
    for (const DataType type : testing::kAllTypes) {
      for (const std::size_t count : {5, 0, 1, 1000}) {
        constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg};
        const ReduceOp op = kOps[turn++ % 5];
        if (testing::kSanitized && turn % 4 != 0) continue;
        if (testing::takes(op, type)) check_call(*job, count, type, op);
      }
    }
    check_call(*job, 100'003, DataType::int32, ReduceOp::sum);
    check_call(*job, 1000, DataType::bfloat16, ReduceOp::sum);  // beside what longer packets have left
    check_call(*job, 100'003, DataType::bfloat16, ReduceOp::max);
  }
}

TEST_CASE("direct programs: successive calls, between which a rank waits for nothing") {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U}) {
    for (const Program& program : test::all_programs(ranks)) {
      for (const std::uint32_t workers : {1U, ranks}) {
        CHECK_MESSAGE(wrong_calls(program, 103, 20, workers).empty(), program.name, " of ", ranks, " ranks");
      }
      CHECK_MESSAGE(wrong_calls(program, 0, 20, ranks).empty(), program.name, " of ", ranks, " ranks");
    }
  }
}

TEST_CASE("direct programs: buffers that bypass the caches") {
  for (const Program& program : {test::one_shot(2), test::two_shot_in_place(2), test::push_all_gather(2)}) {
    const auto job = make_job(program, {.workers = 2});
    check_call(*job, cpu::kStreamed / 4 + 3, DataType::int32, ReduceOp::sum);
  }
}

// With one worker the proxies are always later than the threadblocks.
TEST_CASE("an asynchronous move comes late where the signal goes another way") {
  for (const bool right : {true, false}) {
    test::DirectBuilder b("late", test::builtin(CollectiveKind::alltoall, 2, 1));
    const std::uint32_t direct = b.all_channels();
    const std::uint32_t ports = b.all_channels(true);
    for (std::uint32_t r = 0; r < 2; ++r) {
      b.rank();
      b.tb();
      b.enter(direct);
      b.move({test::in(r, r)}, {test::out(r, r)});
      b.move({test::in(r, 1 - r)}, {test::out(1 - r, r)}, 1, b.between(ports, r, 1 - r));
      b.leave(right ? ports : direct);
    }
    const Program program = b.finish();
    CHECK(wrong_calls(program, 10, 1, 1).empty() == right);
  }
}

// In its second call in turn, rank 0 waits for what nobody releases again.
Program waits_in_vain() {
  test::DirectBuilder b("waits", test::builtin(CollectiveKind::alltoall, 2, 1));
  const std::uint32_t ready = b.semaphore(0, 1);
  for (std::uint32_t r = 0; r < 2; ++r) {
    b.rank();
    b.tb();
    if (r == 0) b.step(Op::acquire, {ready});
    for (std::uint32_t p = 0; p < 2; ++p) b.move({test::in(p, r)}, {test::out(r, p)});
  }
  return b.finish();
}

// No thread may run when the process is forked: ThreadSanitizer does not follow threads of such a child.
TEST_CASE("a direct program does not count the time in which its process was stopped") {
  const Program program = waits_in_vain();
  CHECK(core::testing::leaves_out_stops([&] {
    const auto job = make_job(program, {.workers = 2, .timeout_s = 1});
    Sums sums(job->program().collective, 10);
    const Status status = job->run_calls(sums.call(), 2);
    return !status.ok() && status.error().code == ErrorCode::Timeout;
  }));
}

TEST_CASE("a direct program that waits for what does not come") {
  const Program program = waits_in_vain();
  const std::string waits = "rank 0 threadblock 0 step 0 (acquire) waits for semaphore 0";
  auto job = make_job(program, {.workers = 1});
  Sums sums(job->program().collective, 10);
  for (int again = 0; again < 2; ++again) {
    CHECK(job->run(sums.call()).ok());
    const Status status = job->run(sums.call());
    REQUIRE(!status.ok());
    CHECK(status.error().code == ErrorCode::RuntimeDeadlock);
    CHECK(status.error().str().find(waits) != std::string::npos);
  }
  job = make_job(program, {.workers = 2, .timeout_s = 0.05});
  std::string text;
  do {  // again where a thread has not come so far
    const Status status = job->run_calls(sums.call(), 2);
    REQUIRE(!status.ok());
    CHECK(status.error().code == ErrorCode::Timeout);
    text = status.error().str();
  } while (text.find(waits) == std::string::npos);
  job = make_job(program, {.workers = 2});
  const Status stopped = job->run_calls(sums.call(), 2, {}, [] { return true; });
  REQUIRE(!stopped.ok());
  CHECK(stopped.error().code == ErrorCode::Aborted);
  CHECK(job->run(sums.call()).ok());
}

TEST_CASE("a direct program that adds up in the input outside its output works on a copy") {
  test::DirectBuilder b("adds up", test::builtin(CollectiveKind::reducescatter, 2, 1, true));
  const std::uint32_t meeting = b.all_channels();
  for (std::uint32_t r = 0; r < 2; ++r) {
    b.rank();
    b.tb();
    b.enter(meeting);
    b.move({test::in(r, 1 - r), test::in(1 - r, 1 - r)}, {test::in(r, 1 - r)});  // the block of the peer
    b.leave(meeting);
    b.move({test::in(1 - r, r)}, {test::in(r, r)});
    b.leave(meeting);
  }
  const auto job = make_job(b.finish());
  check_call(*job, 100, DataType::int32, ReduceOp::sum);
  check_call(*job, 1001, DataType::float64, ReduceOp::max);
}

TEST_CASE("direct programs: times") {
  const auto job = make_job(test::packet_two_shot(2));
  Buffers buffers(job->program().collective, 1000, DataType::int32, ReduceOp::sum);
  const auto times = job->time(buffers.call(), 3, 10);
  REQUIRE(times.ok());
  CHECK(times.value().size() == 10);
  for (const double seconds : times.value()) CHECK(seconds > 0);
  CHECK(!buffers.difference());
}

TEST_CASE("what a job of a direct program refuses") {
  const auto refused = [](const Program& program, const JobOptions& options = {}) {
    const auto job = Job::create(program, options);
    REQUIRE(!job.ok());
    return job.error();
  };
  CHECK(refused(test::one_shot(2), {.timeout_s = -1}).code == ErrorCode::BadOption);
  Program program = test::one_shot(2);
  program.halves = 3;
  CHECK(refused(program).code == ErrorCode::BadStructure);
  program = test::one_shot(2);
  for (ir::direct::Step& step : program.steps) {
    if (step.op == Op::move) program.operands[step.first + step.sources].buffer = Buffer::input;
  }
  const Diagnostic overwritten = refused(program);
  CHECK(overwritten.code == ErrorCode::InputOverwritten);
  CHECK(overwritten.str().find("rank 0 threadblock 0 step 3 writes to input[0] of rank 0") != std::string::npos);
  program = test::one_shot(2);
  program.steps[0].op = Op::sync;  // instead of the signal
  program.steps[0].sources = 0;
  program.steps[0].relaxed = false;
  program.objects.erase(program.objects.begin());
  for (std::size_t s = 1; s < program.steps.size(); ++s) {
    if (program.steps[s].op != Op::move) --program.steps[s].first;
  }
  const Diagnostic stuck = refused(program);
  CHECK(stuck.code == ErrorCode::RuntimeDeadlock);
  CHECK(stuck.str().find("waits for rank 0 to signal on channel 0") != std::string::npos);

  const auto job = make_job(test::one_shot(2));
  Buffers buffers(job->program().collective, 4, DataType::float32, ReduceOp::bxor);
  CHECK(job->run(buffers.call()).error().code == ErrorCode::BadReduceOp);
  Buffers missing(job->program().collective, 4, DataType::int32, ReduceOp::sum);
  missing.output_at[1] = nullptr;
  CHECK(job->run(missing.call()).error().code == ErrorCode::BadBuffer);
  check_call(*job, 4, DataType::int32, ReduceOp::sum);
}

TEST_CASE("a direct program that keeps chunks where others are shorter works on padded copies") {
  for (const bool in_place : {false, true}) {
    test::DirectBuilder b("turned", test::builtin(CollectiveKind::allgather, 2, 2, in_place));
    const std::uint32_t meeting = b.all_channels();
    for (std::uint32_t r = 0; r < 2; ++r) {
      const std::uint32_t own = 2 * r;  // where its block is in the output
      const auto from = [&](std::uint32_t c) { return in_place ? test::out(r, own + c) : test::in(r, c); };
      b.rank(1);
      b.tb();
      b.enter(meeting);
      b.move({from(0)}, {test::out(1 - r, own + 1)});
      b.leave(meeting);
      b.move({test::out(r, 3 - own)}, {test::sc(r, 0)});
      b.step(Op::sync);
      b.move({test::sc(r, 0)}, {test::out(r, 2 - own)});
      b.leave(meeting);
      b.move({from(1)}, {test::out(1 - r, own + 1)});
      if (!in_place) b.move({test::in(r, 0)}, {test::out(r, own)}, 2);
      b.leave(meeting);
    }
    const auto job = make_job(b.finish());
    for (const std::size_t count : {8, 7, 1, 0}) check_call(*job, count, DataType::int32, ReduceOp::sum);
  }
}

}  // namespace
}  // namespace gc3::direct
