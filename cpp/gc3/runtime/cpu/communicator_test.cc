// Communicators of processes: results, reuse, splitting, and errors.
#include "gc3/runtime/cpu/communicator.h"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "gc3/base/errors/processes.h"
#include "gc3/runtime/cpu/test_ranks.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3 {
namespace {

using model::Protocol;
using testing::DataType;
using testing::expect;
using testing::join;
using testing::kAllOps;
using testing::kAllProtocols;
using testing::kAllTypes;
using testing::kSanitized;
using testing::meeting_of;
using testing::prepare;
using testing::Ranks;
using testing::ReduceOp;
using testing::run_ranks;
using testing::runs_right;

TEST_CASE("results are right for all numbers of ranks, protocols and odd counts") {
  for (const std::uint32_t n : {1U, 2U, 3U, 4U, 7U, 8U}) {
    if (kSanitized && n % 4 == 0) continue;
    run_ranks(n, [n](std::uint32_t rank) {
      const auto comm = join(meeting_of(rank, n));
      bool good = expect(comm->rank() == rank && comm->size() == n, rank, "who am I");
      for (const Protocol protocol : kAllProtocols) {
        for (const bool in_place : {false, true}) {
          const auto ring = prepare(*comm, testing::ring_allreduce(n, in_place, protocol, 2));
          const auto pairs = prepare(*comm, testing::allpairs_allreduce(n, in_place, protocol));
          for (const std::size_t count : {0, 1, 13, 1000, 40'000}) {
            good = runs_right(*comm, *ring, count) && runs_right(*comm, *pairs, count) && good;
          }
        }
        const auto exchange = prepare(*comm, testing::direct_alltoall(n, 3, protocol), 2, 4096);
        good = runs_right(*comm, *exchange, 5000) && good;
      }
      return good;
    });
  }
}

TEST_CASE("in place, only the part of the input that is the output is written") {
  run_ranks(2, [](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 2));
    bool good = true;
    for (const Protocol protocol : kAllProtocols) {
      const auto whole = prepare(*comm, testing::busy_inputs(protocol, 3));
      const auto padded = prepare(*comm, testing::busy_inputs_of_two_lengths(protocol));
      for (const std::size_t count : {0, 1, 2, 3, 1001, 70'001}) {
        good = runs_right(*comm, *whole, count) && runs_right(*comm, *padded, count) && good;
      }
    }
    return good;
  });
}

// Runs on buffers that all ranks can read, and checks the results.
bool runs_right_shared(cpu::Communicator& comm, cpu::ProcessProgram& program, std::size_t count) {
  const std::uint32_t rank = comm.rank();
  testing::Buffers buffers(program.plan().collective, count, DataType::int32, ReduceOp::sum, rank);
  const interp::PlanRank& has = program.plan().ranks[rank];
  const std::size_t input_bytes = has.input_blocks * count * sizeof(std::int32_t);
  const std::size_t output_bytes = has.output_blocks * count * sizeof(std::int32_t);
  const auto input = comm.allocate(input_bytes).value();
  const auto output = comm.allocate(output_bytes).value();
  std::memcpy(input.get(), buffers.input_at[rank], input_bytes);
  const bool apart = !program.plan().collective.in_place();
  const Status status =
      program.run({input.get(), apart ? output.get() : input.get(), count, DataType::int32, ReduceOp::sum});
  std::memset(apart ? input.get() : output.get(), 0, apart ? input_bytes : output_bytes);  // no rank reads it any more
  if (!expect(status.ok(), rank, status.ok() ? "" : status.error().str())) return false;
  std::memcpy(buffers.output_at[rank], apart ? output.get() : input.get(), output_bytes);
  const auto difference = buffers.difference();
  return expect(!difference.has_value(), rank, "count " + std::to_string(count) + ": " + difference.value_or(""));
}

constexpr std::size_t kLongChunk = kSanitized ? 10'000 : 100'000;

TEST_CASE("results are the same if data is lent from shared memory, from another process, or copied") {
  for (const bool single_copy : {true, false}) {
    for (const std::uint32_t n : {2U, kSanitized ? 3U : 5U}) {
      run_ranks(n, [n, single_copy](std::uint32_t rank) {
        auto made = cpu::Communicator::init(meeting_of(rank, n), {30, true, single_copy, false});
        if (!expect(made.ok(), rank, "init")) return false;
        cpu::Communicator& comm = *made.value();
        bool good = true;
        for (const bool in_place : {false, true}) {
          const auto ring = prepare(comm, testing::ring_allreduce(n, in_place, Protocol::Simple, 2));
          const auto pairs = prepare(comm, testing::allpairs_allreduce(n, in_place, Protocol::Simple));
          for (const std::size_t count :
               {std::size_t{n} * 2, std::size_t{n} * 2000, std::size_t{100'001}, std::size_t{n} * kLongChunk}) {
            for (cpu::ProcessProgram* program : {ring.get(), pairs.get()}) {
              good = runs_right(comm, *program, count) && runs_right_shared(comm, *program, count) && good;
            }
          }
        }
        for (const Protocol protocol : {Protocol::Simple, Protocol::Pull, Protocol::Copy}) {
          const auto exchange = prepare(comm, testing::direct_alltoall(n, 3, protocol));
          good = runs_right(comm, *exchange, 90'000) && runs_right_shared(comm, *exchange, 90'000) && good;
        }
        return good;
      });
    }
  }
}

TEST_CASE("when a call returns, no rank reads its buffers any more, even if the others are late") {
  run_ranks(2, [](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 2));
    const auto program = prepare(*comm, testing::one_message());
    bool good = program->load().ok();
    for (int turn = 0; turn < 3; ++turn) {
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::vector<std::int32_t> data(30'000, turn);
      std::vector<std::int32_t> got(30'000);
      good = program->run({data.data(), got.data(), data.size(), DataType::int32, ReduceOp::sum}).ok() && good;
      std::fill(data.begin(), data.end(), -1);
      if (rank == 1) good = expect(got == std::vector<std::int32_t>(30'000, turn), rank, "overwritten") && good;
    }
    return good;
  });
}

TEST_CASE("processes: every type and operation") {
  run_ranks(3, [](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 3));
    const auto ring = prepare(*comm, testing::ring_allreduce(3, false, Protocol::LL));
    bool good = true;
    for (const DataType type : kAllTypes) {
      for (const ReduceOp op : kAllOps) {
        if (testing::takes(op, type)) good = runs_right(*comm, *ring, 77, type, op) && good;
      }
    }
    return good;
  });
}

TEST_CASE("preparing the same program twice gives one object; with another slot size it gives another") {
  run_ranks(1, [](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 1));
    const ir::Program ring = testing::ring_allreduce(1, false, Protocol::Simple);
    return prepare(*comm, ring) == prepare(*comm, ring) && prepare(*comm, ring) != prepare(*comm, ring, 16);
  });
}

TEST_CASE("a program's fingerprint depends on the whole program and on the job's random key") {
  const auto made = [](const ir::Program& program, std::uint32_t slots, const std::string& key) {
    return cpu::ProcessProgram::create(program, 0, slots, 4096, key, std::make_shared<cpu::Membership>())
        .value()
        ->fingerprint();
  };
  const ir::Program ring = testing::ring_allreduce(2, false, Protocol::Simple);
  CHECK(made(ring, 8, "a key") == made(ring, 8, "a key"));
  CHECK(made(ring, 8, "a key") != made(ring, 8, "another"));
  CHECK(made(ring, 8, "a key") != made(ring, 4, "a key"));
  CHECK(made(ring, 8, "a key") != made(testing::allpairs_allreduce(2, false, Protocol::Simple), 8, "a key"));
  const auto in_a_job = [&] {
    return prepare(*join(meeting_of(0, 1)), testing::ring_allreduce(1, false, Protocol::Simple))->fingerprint();
  };
  CHECK(in_a_job() != in_a_job());
}

TEST_CASE("slots are larger than the caches of a core only where messages of that size are read") {
  const auto members = std::make_shared<cpu::Membership>();
  const auto slot = [&](std::uint64_t wanted, const ThresholdChanges& changes = {}, bool pulls = false) {
    const ir::Program ring = testing::ring_allreduce(2, false, pulls ? Protocol::Pull : Protocol::Simple);
    return cpu::ProcessProgram::create(ring, 0, 2, wanted, "a key", members, changes).value()->geometry().slot_bytes;
  };
  constexpr std::uint64_t kKiB = 1024;
  CHECK(slot(1024 * kKiB) == 256 * kKiB);
  CHECK(slot(64 * kKiB) == 64 * kKiB);
  members->single_copy.thresholds.moved = 512 * kKiB;
  CHECK(slot(1024 * kKiB) == 256 * kKiB);  // no rank can read another one's memory
  members->single_copy.reads = true;
  CHECK(slot(1024 * kKiB) == 1024 * kKiB);
  CHECK(slot(384 * kKiB) == 256 * kKiB);
  ThresholdChanges changes;
  CHECK(changes.set("copied_slot", 128 * kKiB).empty());
  CHECK(slot(384 * kKiB, changes) == 128 * kKiB);
  // A program that pulls reads all messages, unless it is told from which size on.
  CHECK(slot(384 * kKiB, changes, true) == 384 * kKiB);
  CHECK(changes.set("read_moved", "never").empty());
  CHECK(changes.set("read_combined", "never").empty());
  CHECK(slot(384 * kKiB, changes, true) == 128 * kKiB);
}

TEST_CASE("communicators made by split work besides the first one, also at the same time") {
  run_ranks(5, [](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 5));
    const bool none = rank == 4;
    auto made = comm->split(none ? std::nullopt : std::optional(rank % 2), -static_cast<std::int64_t>(rank));
    if (!expect(made.ok(), rank, "split")) return false;
    const auto part = std::move(made).value();
    if (none != (part == nullptr)) return expect(false, rank, "a rank without a color gets no communicator");
    const auto whole = prepare(*comm, testing::ring_allreduce(5, false, Protocol::Simple));
    bool good = true;
    if (part != nullptr) {
      good = expect(part->size() == 2 && part->rank() == (rank < 2 ? 1U : 0U), rank, "descending keys");
      const auto program = prepare(*part, testing::ring_allreduce(2, false, Protocol::LL));
      bool beside = true;
      std::thread thread([&] {
        for (int i = 0; i < 50; ++i) beside = runs_right(*part, *program, 100) && beside;
      });
      for (int i = 0; i < 20; ++i) good = runs_right(*comm, *whole, 100) && good;
      thread.join();
      return good && beside;
    }
    for (int i = 0; i < 20; ++i) good = runs_right(*comm, *whole, 100) && good;
    return good;
  });
}

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}
// A sanitizer's own records grow with new accesses.
constexpr std::size_t kPagesOfTools = kSanitized ? 1U << 16U : 0;

std::size_t resident_pages() {
  std::size_t total = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident;
}

TEST_CASE("10,000 mixed calls leak neither memory nor descriptors") {
  run_ranks(3, [](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 3));
    std::vector<std::shared_ptr<cpu::ProcessProgram>> programs;
    for (const Protocol protocol : kAllProtocols) {
      programs.push_back(prepare(*comm, testing::ring_allreduce(3, false, protocol)));
      programs.push_back(prepare(*comm, testing::allpairs_allreduce(3, true, protocol)));
      programs.push_back(prepare(*comm, testing::direct_alltoall(3, 1, protocol)));
    }
    bool good = true;
    std::size_t files = 0;
    std::size_t pages = 0;
    for (std::uint32_t i = 0; i < (kSanitized ? 1'600 : 10'000); ++i) {
      if (i == 1000) {
        files = open_files();
        pages = resident_pages();
      }
      good = runs_right(*comm, *programs[i * 7 % programs.size()], i % 50 == 0 ? 5000 : i * 13 % 300) && good;
      if (i % 100 == 0) good = comm->barrier().ok() && good;
      if (i % 500 == 0) {
        auto part = comm->split(0, 0);
        good = expect(part.ok(), rank, "split") && good;
      }
    }
    good = expect(open_files() == files, rank, "descriptors") && good;
    return expect(resident_pages() < pages + 256 + kPagesOfTools, rank,
                  "memory: " + std::to_string(resident_pages() - pages)) &&
           good;
  });
}

TEST_CASE("calls are refused on a closed communicator and in a fork") {
  run_ranks(2, [](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 2));
    const pid_t child = fork();
    if (child == 0) {
      const Status status = comm->barrier();
      _exit(!status.ok() && status.error().code == ErrorCode::UsedAfterFork ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    bool good = expect(status == 0, rank, "the fork could use the communicator");
    good = expect(comm->barrier().ok(), rank, "the fork has disturbed its parent") && good;
    comm->close();
    const Status closed = comm->barrier();
    return good && !closed.ok() && closed.error().code == ErrorCode::CommunicatorClosed;
  });
}

TEST_CASE("ranks that do not fit together get the reason" * doctest::test_suite("waits")) {
  const auto problem = [](const core::Meeting& meeting) {
    auto made = cpu::Communicator::init(meeting, {});
    return made.ok() ? std::string("none") : made.error().message;
  };
  SUBCASE("sizes") {
    run_ranks(2, [&](std::uint32_t rank) {
      const std::string told = problem(meeting_of(rank, 2 + rank));
      return expect(told.find("rank 1 says there are 3 ranks, rank 0 says 2") != std::string::npos, rank, told);
    });
  }
  SUBCASE("the same rank twice") {
    run_ranks(3, [&](std::uint32_t rank) {
      const std::string told = problem(meeting_of(rank == 0 ? 0 : 1, 3));
      return expect(told.find("two processes say they are rank 1") != std::string::npos, rank, told);
    });
  }
  SUBCASE("one is missing") {
    run_ranks(2, [&](std::uint32_t rank) {
      const std::string told = problem(meeting_of(rank, 3, 0.5));
      return expect(told.find("have not joined within 0.5 s: 2") != std::string::npos, rank, told);
    });
  }
  SUBCASE("one ends before all have joined: the others do not wait for the deadline") {
    Ranks ranks(3, [&](std::uint32_t rank) {
      if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const core::Meeting meeting = meeting_of(rank, 4, 300);
      if (rank == 2) {
        std::thread([] {
          std::this_thread::sleep_for(std::chrono::seconds(2));  // by then it has joined
          kill(getpid(), SIGKILL);
        }).detach();
      }
      const std::string told = problem(meeting);
      return expect(told.find("rank 2 (process ") != std::string::npos &&
                        told.find("has disconnected while the others were joining") != std::string::npos,
                    rank, told);
    });
    CHECK(ranks.succeeds(0));
    CHECK(ranks.succeeds(1));
  }
  SUBCASE("versions of gc3") {
    run_ranks(2, [&](std::uint32_t rank) {
      core::Meeting meeting = meeting_of(rank, 2);
      if (rank == 1) meeting.release = "0.0.1";
      const std::string told = problem(meeting);
      return expect(told.find("rank 1 has version 0.0.1 of gc3, rank 0 has ") != std::string::npos, rank, told);
    });
  }
  SUBCASE("rank 0 is missing") {
    run_ranks(1, [&](std::uint32_t) {
      const std::string told = problem(meeting_of(1, 2, 0.3));
      return expect(told.find("rank 0 has not called") != std::string::npos, 1, told);
    });
  }
}

}  // namespace
}  // namespace gc3
