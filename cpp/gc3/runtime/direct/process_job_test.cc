#include "gc3/runtime/direct/process_job.h"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/ir/direct/test_direct.h"
#include "gc3/runtime/cpu/test_ranks.h"

namespace gc3::direct {

// The rank says in later calls with the same arrays that its input is there.
struct TestForger {
  static void forge(ProcessJob& job, std::uint64_t offset) { job.own_[0] = offset; }
};

namespace {

namespace test = ir::direct::test;
using model::DataType;
using model::ReduceOp;
using testing::expect;

std::shared_ptr<ProcessJob> prepared(const cpu::Communicator& comm, const Program& program) {
  auto made = ProcessJob::create(program, comm, nullptr);
  if (!expect(made.ok(), comm.rank(), made.ok() ? "" : made.error().str())) _exit(2);
  return std::move(made).value();
}

// The arrays of this rank where all ranks reach them.
struct Registered {
  std::shared_ptr<std::uint8_t> input;
  std::shared_ptr<std::uint8_t> output;
  cpu::RankCall call;

  Registered(cpu::Communicator& comm, const model::Collective& collective, std::size_t count) {
    const std::uint32_t rank = comm.rank();
    input = comm.allocate(collective.input_blocks(rank) * count * 4 + 1).value();
    output = collective.in_place() ? input : comm.allocate(collective.output_blocks(rank) * count * 4 + 1).value();
    call = {input.get(), output.get(), count, DataType::int32, ReduceOp::sum};
  }
};

bool is_right(ProcessJob& job, const Registered& arrays, std::uint32_t rank) {
  const model::Collective& collective = job.plan().collective;
  const std::size_t count = arrays.call.count;
  testing::Buffers buffers(collective, count, DataType::int32, ReduceOp::sum, rank);
  std::memcpy(arrays.input.get(), buffers.input_at[rank], collective.input_blocks(rank) * count * 4);
  const Status status = job.run(arrays.call);
  if (!expect(status.ok(), rank, status.ok() ? "" : status.error().str())) return false;
  std::memcpy(buffers.output_at[rank], arrays.output.get(), collective.output_blocks(rank) * count * 4);
  const auto difference = buffers.difference();
  return expect(!difference && job.explain().find("last call") == std::string::npos, rank,
                job.explain() + ": " + difference.value_or(""));
}

// Rank 0 is late in the program, so the others wait there.
Program late(std::uint32_t ranks) {
  test::DirectBuilder b("late", test::builtin(model::CollectiveKind::alltoall, ranks, 1));
  const std::uint32_t meeting = b.all_channels();
  for (std::uint32_t r = 0; r < ranks; ++r) {
    b.rank();
    b.tb();
    for (int k = 0; k < (r == 0 ? 2000 : 0); ++k) b.move({test::in(0, 0)}, {test::out(0, 0)});
    b.enter(meeting);
    for (std::uint32_t p = 0; p < ranks; ++p) b.move({test::in(p, r)}, {test::out(r, p)});
    b.leave(meeting);
  }
  return b.finish();
}
constexpr std::size_t kLate = 100'000;  // elements

TEST_CASE("direct programs between processes: buffers in turn, of several sizes") {
  for (const std::uint32_t ranks : {1U, 2U, 3U}) {
    testing::run_ranks(ranks, [&](std::uint32_t rank) {
      const auto comm = testing::join(testing::meeting_of(rank, ranks));
      bool right = true;
      for (const Program& program : test::all_programs(ranks)) {
        const auto job = prepared(*comm, program);
        for (const std::size_t count : {5, 1000, 1, 0, 3001}) {
          const std::array arrays = {Registered(*comm, program.collective, count),
                                     Registered(*comm, program.collective, count)};
          for (int call = 0; call < 6 && right; ++call) right = is_right(*job, arrays[call % 2], rank);
        }
      }
      return right;
    });
  }
}

TEST_CASE("direct programs between processes: a rank is killed in a call, is stopped, gives up or does not call") {
  enum class How { killed, stopped, interrupted, absent };
  for (const How how : {How::killed, How::stopped, How::interrupted, How::absent}) {
    testing::Ranks ranks(3, [&](std::uint32_t rank) {
      const auto comm = testing::join(testing::meeting_of(rank, 3));
      const auto job = prepared(*comm, late(3));
      Registered arrays(*comm, job->plan().collective, kLate);
      if (!is_right(*job, arrays, rank)) return false;
      const auto wait_while = [](const auto& condition) {
        while (condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      if (how == How::stopped && rank == 1) raise(SIGSTOP);
      if (how == How::stopped) wait_while([&] { return comm->group().runs(1); });
      if (how == How::absent && rank == 1) wait_while([&] { return comm->group().check().ok(); });
      if (how == How::stopped || how == How::absent) arrays.call.timeout_s = 0.2;
      const auto interrupted = [&] {
        if (rank == 1 && how == How::killed) raise(SIGKILL);
        return rank == 1 && how == How::interrupted;
      };
      Status status;
      while (status.ok()) status = job->run(arrays.call, interrupted);
      const std::string text = status.error().str();
      const ErrorId code = status.error().code;
      const bool told = how == How::killed        ? code == ErrorCode::RankLost
                        : how == How::interrupted ? code == ErrorCode::Aborted
                                                  : code == ErrorCode::Timeout;
      return expect(told && text.find("rank 1") != std::string::npos && !job->run(arrays.call).ok(), rank, text);
    });
    CHECK(ranks.succeeds(0));
    CHECK(ranks.succeeds(2));
    if (how == How::interrupted || how == How::absent) CHECK(ranks.succeeds(1));
  }
}

TEST_CASE("direct programs between processes: a rank makes another call") {
  enum class What { longer, other_program, messages };
  for (const What what : {What::longer, What::other_program, What::messages}) {
    testing::run_ranks(2, [&](std::uint32_t rank) {
      const auto comm = testing::join(testing::meeting_of(rank, 2));
      const auto job = prepared(*comm, test::one_shot(2));
      const auto other = prepared(*comm, test::two_shot(2));
      const Registered arrays(*comm, job->plan().collective, what == What::longer ? 5001 : 5000);
      Registered wrong = arrays;
      if (what == What::longer && rank == 1) wrong.call.count = 5000;
      if (what != What::messages && !is_right(*job, arrays, rank)) return false;
      Status status;
      if (what == What::messages && rank == 1) {
        status = comm->barrier();
      } else {
        status = (what == What::other_program && rank == 1 ? other : job)->run(wrong.call);
      }
      const std::string text = status.ok() ? "no error" : status.error().str();
      return expect(!status.ok() && status.error().code == ErrorCode::CallsDiffer, rank, text) &&
             expect(!job->run(arrays.call).ok(), rank, "the next call runs");
    });
  }
}

TEST_CASE("direct programs between processes: a rank gives memory that there is not") {
  for (const std::uint64_t offset : {core::SharedMemory::kMostAddresses - 4096, core::Window::kNowhere - 1}) {
    testing::run_ranks(2, [&](std::uint32_t rank) {
      const auto comm = testing::join(testing::meeting_of(rank, 2));
      const auto job = prepared(*comm, test::one_shot(2));
      const Registered arrays(*comm, job->plan().collective, 5000);
      if (!is_right(*job, arrays, rank)) return false;
      if (rank == 1) TestForger::forge(*job, offset);
      const Status status = job->run(arrays.call);
      const std::string text = status.ok() ? "no error" : status.error().str();
      return expect(text.find("rank 0 cannot reach the input of rank 1") != std::string::npos, rank, text);
    });
  }
}

}  // namespace
}  // namespace gc3::direct
