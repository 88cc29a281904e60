// The effect on other ranks when a rank dies, stops, leaves, or makes a different call.
#include <doctest/doctest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/cpu/test_ranks.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3 {
namespace {

using model::Protocol;
using testing::DataType;
using testing::expect;
using testing::join;
using testing::meeting_of;
using testing::prepare;
using testing::Ranks;
using testing::ReduceOp;
using testing::run_ranks;

// Makes calls forever; returns why they ended.
Diagnostic call_until_failure(cpu::Communicator& comm, std::size_t count) {
  std::vector<std::shared_ptr<cpu::ProcessProgram>> programs;
  for (const Protocol protocol : testing::kAllProtocols) {
    programs.push_back(prepare(comm, testing::ring_allreduce(comm.size(), false, protocol)));
    programs.push_back(prepare(comm, testing::allpairs_allreduce(comm.size(), false, protocol)));
  }
  std::vector<float> in(count, 1.0F);
  std::vector<float> out(count);
  for (std::size_t i = 0;; ++i) {
    cpu::ProcessProgram& program = *programs[i % programs.size()];
    Status status = program.run({in.data(), out.data(), count, DataType::float32, ReduceOp::sum});
    if (status.ok() && i % 16 == 0) status = comm.barrier();
    if (!status.ok()) return status.error();
  }
}

bool names(const Diagnostic& problem, std::uint32_t rank, ErrorId code, const std::string& what, std::uint32_t self) {
  const std::string who = "rank " + std::to_string(rank) + " (process ";
  return expect(problem.code == code && problem.message.find(who) != std::string::npos &&
                    problem.message.find(what) != std::string::npos,
                self, problem.str());
}

void kill_at_random(std::uint32_t seed, int worlds) {
  std::mt19937 random(seed);
  for (int world = 0; world < worlds; ++world) {
    const auto n = static_cast<std::uint32_t>(2 + random() % 4);
    const auto victim = static_cast<std::uint32_t>(random() % n);
    const std::size_t count = std::size_t{1} << random() % 17;
    const auto after = std::chrono::microseconds(random() % 6000);
    const testing::Moment killed;
    Ranks ranks(n, [&](std::uint32_t rank) {
      const auto comm = join(meeting_of(rank, n));
      if (rank == victim) {
        std::thread([&] {
          std::this_thread::sleep_for(after);
          killed.note();
          kill(getpid(), SIGKILL);
        }).detach();
      }
      const Diagnostic problem = call_until_failure(*comm, count);
      return expect(killed.seconds_since() < 5, rank, "late") &&
             names(problem, victim, ErrorCode::RankLost, "has ended", rank);
    });
    for (std::uint32_t r = 0; r < n; ++r) {
      if (r != victim) CHECK_MESSAGE(ranks.succeeds(r), "world ", world, " rank ", r);
    }
  }
}

TEST_CASE("a killed rank is named on all others within 5 s, whenever it dies") {
  kill_at_random(20240817, testing::kSanitized ? 25 : 100);
}

TEST_CASE("nightly: a killed rank is named, at 500 more moments" * doctest::skip()) { kill_at_random(1, 500); }

TEST_CASE("a rank that exits or closes is named, unless it has done its part") {
  run_ranks(3, [](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 3));
    if (rank == 1) _exit(0);
    return names(call_until_failure(*comm, 10), 1, ErrorCode::RankLost, "has ended before call", rank);
  });
  const testing::SharedNumber told;
  run_ranks(3, [&](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 3));
    if (rank == 2) {
      comm->close();
      told.wait_for(2);  // a rank that ends is one that has ended
      return true;
    }
    const Diagnostic problem = call_until_failure(*comm, 10);
    (*told).fetch_add(1);
    return names(problem, 2, ErrorCode::RankLost, "has closed the communicator", rank);
  });
}

TEST_CASE("a rank that ends after its part of a call does not make that call fail") {
  run_ranks(3, [](std::uint32_t rank) {
    testing::ProgramBuilder b(model::CollectiveKind::gather, 3, 1, false, Protocol::Simple, 1);
    for (const std::uint32_t sender : {0U, 2U}) {
      b.tb(sender, 1, ir::kNoRank);
      b.send(testing::in(0));
      b.tb(1, ir::kNoRank, sender);
      b.recv(testing::out(sender));
    }
    b.tb(1);
    b.step(ir::Opcode::copy, testing::in(0), testing::out(1));
    const auto comm = join(meeting_of(rank, 3));
    const auto gather = prepare(*comm, b.build());
    if (!gather->load().ok()) return false;
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (!testing::runs_right(*comm, *gather, 100)) return false;
    if (rank == 0) _exit(0);  // without closing
    return true;
  });
}

TEST_CASE("a rank that never comes is named when the deadline has passed" * doctest::test_suite("waits")) {
  Ranks ranks(2, [](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 2), 2);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
    const Diagnostic problem = call_until_failure(*comm, 10);
    return expect(
        problem.code == ErrorCode::Timeout && problem.str().find("not called yet by rank 1") != std::string::npos, rank,
        problem.str());
  });
  CHECK(ranks.succeeds(0));
}

// Ranks make some calls together, then rank 1 makes a different one.
void disagree(const char* said, const std::function<Status(cpu::Communicator&, bool odd)>& call) {
  for (const std::uint32_t n : {2U, 4U}) {
    run_ranks(n, [&](std::uint32_t rank) {
      const auto comm = join(meeting_of(rank, n));
      for (int i = 0; i < 5; ++i) {
        if (!call(*comm, false).ok()) return expect(false, rank, "the calls before");
      }
      Status status = call(*comm, rank == 1);
      for (int i = 0; i < 100 && status.ok(); ++i) status = call(*comm, false);
      if (!expect(!status.ok(), rank, "nobody has noticed")) return false;
      const std::string told = status.error().str();
      const bool good = status.error().code == ErrorCode::CallsDiffer && told.find("rank 1: ") != std::string::npos &&
                        told.find(said) != std::string::npos;
      const Status later = call(*comm, false);
      return expect(good && !later.ok() && later.error().str() == told, rank, told);
    });
  }
}

Status ring(cpu::Communicator& comm, std::size_t count, DataType type, ReduceOp op, Protocol protocol) {
  const auto program = prepare(comm, testing::ring_allreduce(comm.size(), false, protocol));
  std::vector<double> in(count);
  std::vector<double> out(count);
  return program->run({in.data(), out.data(), count, type, op});
}

TEST_CASE("different calls are an error on every rank") {
  for (const Protocol protocol : testing::kAllProtocols) {
    disagree("allreduce of 7 float32 (sum)", [=](cpu::Communicator& comm, bool odd) {
      return ring(comm, odd ? 7 : 8, DataType::float32, ReduceOp::sum, protocol);
    });
    disagree("allreduce of 8 int32 (sum)", [=](cpu::Communicator& comm, bool odd) {
      return ring(comm, 8, odd ? DataType::int32 : DataType::float32, ReduceOp::sum, protocol);
    });
    disagree("allreduce of 8 float32 (max)", [=](cpu::Communicator& comm, bool odd) {
      return ring(comm, 8, DataType::float32, odd ? ReduceOp::max : ReduceOp::sum, protocol);
    });
  }
  disagree("allreduce of 800000 float32", [](cpu::Communicator& comm, bool odd) {
    return ring(comm, odd ? 800'000 : 8, DataType::float32, ReduceOp::sum, Protocol::Simple);
  });
  disagree("barrier", [](cpu::Communicator& comm, bool odd) {
    return odd ? comm.barrier() : ring(comm, 8, DataType::float32, ReduceOp::sum, Protocol::LL);
  });
  disagree("split", [](cpu::Communicator& comm, bool odd) {
    if (!odd) return comm.barrier();
    auto part = comm.split(0, 0);
    return part.ok() ? Status() : Status(part.error());
  });
  disagree("allreduce of 8 float32", [](cpu::Communicator& comm, bool odd) {
    return ring(comm, 8, DataType::float32, ReduceOp::sum, odd ? Protocol::LL128 : Protocol::LL);
  });
}

TEST_CASE("ranks that load different programs get an error from the load, even if it needs no new FIFOs") {
  const auto load = [](cpu::Communicator& comm, bool ring, bool in_place) {
    const ir::Program program = ring ? testing::ring_allreduce(comm.size(), in_place, Protocol::Simple)
                                     : testing::allpairs_allreduce(comm.size(), in_place, Protocol::Simple);
    return prepare(comm, program, 8, 4096)->load();
  };
  run_ranks(2, [&](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 2));
    if (!expect(load(*comm, false, true).ok(), rank, "the same program")) return false;
    const Status status = load(*comm, rank == 0, false);
    return expect(!status.ok() && status.error().code == ErrorCode::CallsDiffer, rank, "nobody has noticed");
  });
}

TEST_CASE("abort ends the calls of every rank") {
  run_ranks(3, [](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 3));
    std::thread aborter;
    if (rank == 2) {
      aborter = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        comm->abort();
      });
    }
    const Diagnostic problem = call_until_failure(*comm, 100);
    if (aborter.joinable()) aborter.join();
    return names(problem, 2, ErrorCode::Aborted, "has aborted", rank);
  });
}

TEST_CASE("an interrupted rank gives up for all") {
  const testing::SharedNumber interrupted;
  run_ranks(2, [&](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 2));
    if (rank == 1) interrupted.wait_for(1);
    const auto barrier = [&] {
      return comm->barrier([&] {
        if (rank == 0) (*interrupted).store(1);
        return rank == 0;
      });
    };
    Status status = barrier();
    // Rank 0 had come to the first barrier: rank 1 may have passed it before rank 0 gave up.
    if (rank == 1 && status.ok()) status = barrier();
    return expect(!status.ok() && status.error().message.find("was interrupted") != std::string::npos, rank,
                  status.ok() ? "" : status.error().str());
  });
}

}  // namespace
}  // namespace gc3
