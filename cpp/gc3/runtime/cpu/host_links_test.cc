// Programs whose connections lead to other hosts: results, delays, and what happens when a peer is lost.
#include "gc3/runtime/cpu/host_links.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gc3/base/errors/processes.h"
#include "gc3/runtime/cpu/test_hosts.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3 {
namespace {

using model::Protocol;
using testing::DataType;
using testing::delayed;
using testing::expect;
using testing::hosts_of;
using testing::join_hosts;
using testing::kSanitized;
using testing::prepare;
using testing::Ranks;
using testing::ReduceOp;
using testing::run_ranks;
using testing::runs_right;

bool all_right(cpu::Communicator& comm, const std::vector<std::size_t>& counts) {
  const std::uint32_t n = comm.size();
  bool good = true;
  for (const bool in_place : {false, true}) {
    const auto ring = prepare(comm, testing::ring_allreduce(n, in_place, Protocol::Simple, 2));
    const auto pairs = prepare(comm, testing::allpairs_allreduce(n, in_place, Protocol::Simple));
    for (const std::size_t count : counts) {
      good = runs_right(comm, *ring, count) && runs_right(comm, *pairs, count) && good;
    }
  }
  // With as few slots as the program needs, and with slots of other sizes.
  const auto exchange = prepare(comm, testing::direct_alltoall(n, 3, Protocol::Simple), 1, 4096);
  const auto again = prepare(comm, testing::direct_alltoall(n, 3, Protocol::Simple), 3, 65536);
  for (const std::size_t count : counts) {
    good = runs_right(comm, *exchange, count) && runs_right(comm, *again, count, DataType::float64) && good;
  }
  return good;
}

TEST_CASE("results are right between hosts, for all places of the ranks") {
  for (const auto& hosts : {hosts_of(2, 1), hosts_of(4, 2), hosts_of(4, 1), hosts_of(6, 2), {0U, 1U, 0U, 1U, 1U}}) {
    run_ranks(static_cast<std::uint32_t>(hosts.size()), [&](std::uint32_t rank) {
      const auto comm = join_hosts(rank, hosts);
      const bool good =
          all_right(*comm, {0, 1, 13, 1000, 40'000, hosts.size() == 2 && !kSanitized ? 1'000'000U : 90'000U});
      return comm->barrier().ok() && good;
    });
  }
}

TEST_CASE("results are right over UCX, and over TCP where a rank has none") {
  for (const bool all_have : {true, false}) {
    run_ranks(4, [&](std::uint32_t rank) {
      if (rank == 3 && !all_have) setenv("GC3_UCX", "/no/such/library", 1);
      auto made = cpu::Communicator::init(testing::meeting_of(rank, 4), {30, true, true, false}, {hosts_of(4, 2)});
      if (!expect(made.ok(), rank, made.ok() ? "" : made.error().str())) return false;
      const bool good = all_right(*made.value(), {0, 1, 1000, 90'000, kSanitized ? 100'000U : 500'000U});
      return made.value()->barrier().ok() && good;
    });
  }
}

TEST_CASE("with a secret, UCX is used only if GC3_UCX names it") {
  run_ranks(2, [&](std::uint32_t rank) {
    setenv("GC3_SECRET", "the secret of one test", 1);
    unsetenv("GC3_UCX");
    auto made = cpu::Communicator::init(testing::meeting_of(rank, 2), {30, true, true, false}, {hosts_of(2, 1)});
    if (!expect(made.ok(), rank, made.ok() ? "" : made.error().str())) return false;
    const bool good = all_right(*made.value(), {1000});
    const std::string said = made.value()->network();
    return made.value()->barrier().ok() && good && said.find("tcp, ") == 0 &&
           said.find("not over UCX: there is a secret") != std::string::npos;
  });
}

TEST_CASE("delays and messages that overtake each other change no result") {
  for (std::uint64_t seed = 0; seed < (kSanitized ? 3 : 12); ++seed) {
    const auto hosts = seed % 3 == 0 ? hosts_of(4, 2) : seed % 3 == 1 ? hosts_of(3, 1) : hosts_of(6, 2);
    run_ranks(static_cast<std::uint32_t>(hosts.size()), [&](std::uint32_t rank) {
      const auto comm = join_hosts(rank, hosts, delayed({seed, static_cast<std::uint32_t>(1 + seed * 7 % 40), {}}));
      const bool good = all_right(*comm, {1, 1000, 50'000});
      return comm->barrier().ok() && good;
    });
  }
}

TEST_CASE("a rank that finishes its part and leaves does no harm") {
  run_ranks(2, [](std::uint32_t rank) {
    const auto comm = join_hosts(rank, hosts_of(2, 1));
    const auto program = prepare(*comm, testing::one_message(), 4, 65536);
    bool good = expect(program->load().ok(), rank, "load");
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    good = runs_right(*comm, *program, 30'000) && good;
    comm->close();  // rank 0, while rank 1 has not received everything
    return good;
  });
}

TEST_CASE("a communicator that has failed waits for no host when it is closed") {
  for (const bool fails : {true, false}) {
    run_ranks(2, [&](std::uint32_t rank) {
      bool abandoned = false;
      const auto comm = join_hosts(rank, hosts_of(2, 1), delayed({7, 3, {}, &abandoned}));
      const auto program = prepare(*comm, testing::ring_allreduce(2, false, Protocol::Simple));
      const bool good = runs_right(*comm, *program, 1000) && comm->barrier().ok();
      if (fails) comm->group().abort();
      comm->close();
      return good && abandoned == fails;
    });
  }
}

TEST_CASE("LL between hosts is refused with the reason, and within them it goes on") {
  run_ranks(4, [](std::uint32_t rank) {
    const auto comm = join_hosts(rank, hosts_of(4, 2));
    const auto refused = comm->prepare(ir::as_read(testing::ring_allreduce(4, false, Protocol::LL)), 0, 0);
    return expect(!refused.ok() && refused.error().code == ErrorCode::BetweenHosts &&
                      refused.error().message.find("the protocol LL;") != std::string::npos,
                  rank, refused.ok() ? "prepared" : refused.error().str());
  });
}

// Makes calls until one fails; whether it then leaves the buffers alone.
bool fails_cleanly(cpu::Communicator& comm, cpu::ProcessProgram& program, const std::string& said) {
  const std::size_t count = 30'000;
  std::vector<float> in(count, 1.0F);
  std::vector<float> out(count);
  Status status;
  while (status.ok()) status = program.run({in.data(), out.data(), count, DataType::float32, ReduceOp::sum});
  const std::vector<float> before = out;
  bool good = expect(status.error().message.find(said) != std::string::npos, comm.rank(), status.error().str());
  good = expect(status.error().info().kind == ErrorKind::Comm, comm.rank(), "no CommError") && good;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return expect(out == before, comm.rank(), "written after the error") && good;
}

TEST_CASE("a peer that the network loses is named by all ranks" * doctest::test_suite("waits")) {
  // All worlds at once, since they mostly wait.
  run_ranks(kSanitized ? 1 : 3, [](std::uint32_t world) {
    const std::uint64_t after = std::mt19937(7 + world)() % 60;
    Ranks ranks(4, [&](std::uint32_t rank) {
      const bool loses = rank == 1;
      const auto comm =
          join_hosts(rank, hosts_of(4, 1), delayed({1, 4, loses ? std::optional<std::uint64_t>(after) : std::nullopt}));
      const auto ring = prepare(*comm, testing::ring_allreduce(4, false, Protocol::Simple));
      return fails_cleanly(*comm, *ring, "cannot be reached any more: the test has lost it");
    });
    bool good = true;
    for (std::uint32_t r = 0; r < 4; ++r) good = expect(ranks.succeeds(r), r, "world " + std::to_string(world)) && good;
    return good;
  });
}

TEST_CASE("a rank that is killed is named by all others, at any moment") {
  std::mt19937 random(11);
  for (int world = 0; world < (kSanitized ? 4 : 30); ++world) {
    const auto hosts = world % 3 == 0 ? hosts_of(4, 2) : world % 3 == 1 ? hosts_of(4, 1) : hosts_of(6, 2);
    const auto size = static_cast<std::uint32_t>(hosts.size());
    const auto victim = static_cast<std::uint32_t>(random() % size);
    const auto after = std::chrono::microseconds(random() % 4000);
    Ranks ranks(size, [&](std::uint32_t rank) {
      const auto comm = join_hosts(rank, hosts);
      const auto ring = prepare(*comm, testing::ring_allreduce(size, false, Protocol::Simple));
      if (rank == victim) {
        std::thread([after] {
          std::this_thread::sleep_for(after);
          kill(getpid(), SIGKILL);
        }).detach();
      }
      return fails_cleanly(*comm, *ring, "rank " + std::to_string(victim) + " (process ");
    });
    for (std::uint32_t r = 0; r < size; ++r) {
      if (r != victim) CHECK_MESSAGE(ranks.succeeds(r), "world ", world, " rank ", r);
    }
  }
}

}  // namespace
}  // namespace gc3
