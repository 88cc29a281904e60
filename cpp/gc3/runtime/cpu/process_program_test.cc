// How a program runs in a process: the memory of its scratch, and the turns of its threadblocks.
#include "gc3/runtime/cpu/process_program.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gc3/base/errors/processes.h"
#include "gc3/runtime/cpu/test_ranks.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3 {
namespace {

using model::CollectiveKind;
using model::Protocol;
using testing::DataType;
using testing::expect;
using testing::in;
using testing::meeting_of;
using testing::out;
using testing::prepare;
using testing::ProgramBuilder;
using testing::Ranks;
using testing::run_ranks;
using testing::runs_right;

// AllGather in which each rank copies its block to scratch and sends it from there.
ir::Program staged_allgather(std::uint32_t ranks) {
  ProgramBuilder b(CollectiveKind::allgather, ranks, 1, false, Protocol::Simple);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    b.scratch_chunks(r, 1);
    b.tb(r);
    b.step(ir::Opcode::copy, in(0), testing::scratch(0));
    b.step(ir::Opcode::copy, in(0), out(r));
    for (std::uint32_t i = 1; i < ranks; ++i) {
      b.tb(r, (r + i) % ranks, ir::kNoRank);
      b.send(testing::scratch(0), 1, {{0, 0}});
      b.tb(r, ir::kNoRank, (r + ranks - i) % ranks);
      b.recv(out((r + ranks - i) % ranks));
    }
  }
  return b.build();
}

// Broadcast from rank 0 to each other rank.
ir::Program flat_broadcast(std::uint32_t ranks) {
  ProgramBuilder b(CollectiveKind::broadcast, ranks, 1, true, Protocol::Simple);
  for (std::uint32_t r = 1; r < ranks; ++r) {
    b.tb(0, r, ir::kNoRank);
    b.send(out(0));
    b.tb(r, ir::kNoRank, 0);
    b.recv(out(0));
  }
  return b.build();
}

// The same, but rank 0 copies its data to scratch and sends it from there.
ir::Program staged_broadcast(std::uint32_t ranks) {
  ProgramBuilder b(CollectiveKind::broadcast, ranks, 1, true, Protocol::Simple);
  b.scratch_chunks(0, 1);
  b.tb(0);
  b.step(ir::Opcode::copy, out(0), testing::scratch(0));
  for (std::uint32_t r = 1; r < ranks; ++r) {
    b.tb(0, r, ir::kNoRank);
    b.send(testing::scratch(0), 1, {{0, 0}});
    b.tb(r, ir::kNoRank, 0);
    b.recv(out(0));
  }
  return b.build();
}

// Whether the address is in a shared mapping.
bool is_shared(const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    std::string rights;
    words >> std::hex >> begin >> dash >> end >> rights;
    if (begin <= address && address < end) return rights.back() == 's';
  }
  return false;
}

TEST_CASE("scratch is shared memory of the job, and is not written again before all ranks have read it") {
  for (const std::uint32_t n : {2U, 5U}) {
    run_ranks(n, [n](std::uint32_t rank) {
      auto made = cpu::Communicator::init(meeting_of(rank, n), {30, true, false});  // or the buffers could be read too
      if (!expect(made.ok(), rank, "init")) return false;
      cpu::Communicator& comm = *made.value();
      const auto program = prepare(comm, staged_allgather(n), 2, 65536);
      bool good = true;
      for (std::uint32_t round = 0; round < 12; ++round) {
        // The two types have different bytes, so that data of another call is detected. In each round a rank is late.
        const DataType type = round % 2 == 0 ? DataType::int32 : DataType::float64;
        if (round % n == rank) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        good = runs_right(comm, *program, round % 3 == 2 ? 7 : 100'000, type) && good;
        good = expect(is_shared(program->tasks()[0].regions[2].base), rank, "scratch is private") && good;
      }
      return good;
    });
  }
}

TEST_CASE("a call returns while others read its scratch, which is not changed or freed until they have finished") {
  void* page = mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  const std::atomic_ref returned(*static_cast<std::uint64_t*>(page));
  run_ranks(3, [&](std::uint32_t rank) {
    auto comm = testing::join(meeting_of(rank, 3));
    const auto program = prepare(*comm, staged_broadcast(3), 2, 1 << 20);
    if (!program->load().ok()) return false;
    bool good = true;
    std::int32_t value = 0;
    for (const std::size_t count : {10'000, 10'000, 100'000}) {  // again, and with more scratch
      ++value;
      std::vector<std::int32_t> data(count, rank == 0 ? value : 0);
      if (rank == 2) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
        while (returned.load() == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        good = expect(returned.load() != 0, rank, "rank 0 waits for its readers") && good;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      const Status status = program->run({data.data(), data.data(), count, DataType::int32});
      good = expect(status.ok(), rank, status.ok() ? "" : status.error().str()) && good;
      if (rank == 0) returned.store(1);
      good = expect(data == std::vector<std::int32_t>(count, value), rank, "wrong data") && good;
    }
    comm->close();  // rank 0 closes at once, while rank 2 has yet to read
    return good;
  });
  munmap(page, sizeof(std::uint64_t));
}

TEST_CASE("if a reader of scratch ends, the next call reports it") {
  Ranks ranks(2, [](std::uint32_t rank) {
    const auto comm = testing::join(meeting_of(rank, 2));
    const auto program = prepare(*comm, staged_broadcast(2), 2, 1 << 20);
    if (!program->load().ok() || rank == 1) _exit(1);
    std::vector<std::int32_t> data(10'000, 1);
    const cpu::RankCall call{data.data(), data.data(), data.size(), DataType::int32};
    bool good = expect(program->run(call).ok(), rank, "the first call does not need its reader");
    const Status next = program->run(call);
    return expect(!next.ok() && next.error().code == ErrorCode::RankLost &&
                      next.error().message.find("rank 1") != std::string::npos,
                  rank, next.ok() ? "the next call went well" : next.error().str()) &&
           good;
  });
  CHECK(ranks.succeeds(0));
}

TEST_CASE("with more ranks than bits of Bells, a rank that sleeps without a post wakes no rank of its bit") {
  constexpr std::uint32_t kRanks = 33;
  constexpr std::uint32_t kWatcher = kRanks - 1;
  REQUIRE(core::Bells::bit(0) == core::Bells::bit(30));
  void* page = mmap(nullptr, 2 * sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  const std::atomic_ref calling(static_cast<std::uint64_t*>(page)[0]);
  const std::atomic_ref watched(static_cast<std::uint64_t*>(page)[1]);
  run_ranks(kRanks, [&](std::uint32_t rank) {
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
    const auto comm = testing::join(meeting_of(rank, kRanks), 30, core::WaitMode::block);
    const auto program = prepare(*comm, flat_broadcast(kRanks), 2, 4096);
    bool good = runs_right(*comm, *program, 100) && comm->barrier().ok();
    calling.fetch_add(1);
    if (rank == kWatcher) {
      while (calling.load() < kRanks) pause();
      // All others but rank 0 sleep, or are about to. They rang last in the barrier.
      core::Bells& bells = comm->group().bells();
      const std::uint32_t root = core::Bells::bit(0);
      bells.prepare(root);
      good = expect(bells.is_sure(), rank, "some rank does not ring") && good;
      good =
          expect(!bells.sleep(root, std::chrono::milliseconds(50), false), rank, "a rank without a post rang") && good;
      bells.cancel();
      watched.store(1);
    }
    while (rank == 0 && watched.load() == 0) pause();
    return runs_right(*comm, *program, 100) && good;
  });
  munmap(page, 2 * sizeof(std::uint64_t));
}

// AllReduce in which each rank sends its data to each other one, and adds up what comes, in the order of its peers.
ir::Program one_step_allreduce(std::uint32_t ranks) {
  ProgramBuilder b(CollectiveKind::allreduce, ranks, 1, false, Protocol::Simple);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    std::uint32_t before = b.tb(r);
    b.step(ir::Opcode::copy, in(0), out(0));
    for (std::uint32_t i = 1; i < ranks; ++i) {
      const std::uint32_t peer = (r + i) % ranks;
      b.tb(r, peer, ir::kNoRank);
      b.send(in(0));
      const std::uint32_t adds = b.tb(r, ir::kNoRank, peer);
      b.step(ir::Opcode::recv_reduce_copy, out(0), out(0), 1, {{before, 0}});
      before = adds;
    }
  }
  return b.build();
}

TEST_CASE("a rank that sleeps in a small call does so until all that it needs has come") {
  constexpr std::uint32_t kRanks = 8;
  constexpr int kCalls = 100;
  run_ranks(kRanks, [](std::uint32_t rank) {
    const auto comm = testing::join(meeting_of(rank, kRanks), 30, core::WaitMode::block);
    const auto program = prepare(*comm, one_step_allreduce(kRanks), 2, 4096);
    bool good = true;
    for (int i = 0; i < 10; ++i) good = runs_right(*comm, *program, 100) && good;  // from now on all ring
    const auto sleeps = [] {
      rusage used{};
      getrusage(RUSAGE_SELF, &used);
      return used.ru_nvcsw;
    };
    const long before = sleeps();
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls && good; ++i) good = runs_right(*comm, *program, 100);
    const long slept = sleeps() - before;
    // One more for each check whether the others live, and a few that are not the program's.
    const auto checks = (std::chrono::steady_clock::now() - began) / std::chrono::milliseconds(10);
    return expect(slept <= kCalls + checks + 5, rank, std::to_string(slept) + " sleeps in 100 calls") && good;
  });
}

TEST_CASE("the turn of a threadblock is 64 KiB or 64 steps, whichever comes first, and at least one step") {
  struct Case {
    std::uint64_t slot_bytes;
    std::size_t steps;  // of a turn
  };
  for (const Case& c : {Case{256, 64}, Case{1024, 64}, Case{16'384, 4}, Case{65'536, 1}, Case{131'072, 1}}) {
    CAPTURE(c.slot_bytes);
    run_ranks(1, [&c](std::uint32_t rank) {
      ProgramBuilder b(CollectiveKind::alltoall, 1, 2, false, Protocol::Simple);
      for (const std::uint32_t half : {0U, 1U}) {
        b.tb(0);
        b.step(ir::Opcode::copy, in(half), out(half));
      }
      const auto comm = testing::join(meeting_of(rank, 1));
      const auto program = prepare(*comm, b.build(), 2, c.slot_bytes);
      const std::size_t turns = 3;
      const std::size_t steps = turns * c.steps;  // of each threadblock, a tile each
      std::vector<std::uint8_t> given(2 * steps * c.slot_bytes);
      std::vector<std::uint8_t> result(given.size());
      const auto found = program->record({given.data(), result.data(), given.size(), DataType::uint8}, 2 * steps);
      if (!expect(found.ok() && found.value().steps.size() == 2 * steps, rank, "recording")) return false;
      bool good = true;
      for (std::size_t i = 0; i < 2 * steps; ++i) {
        good = expect(found.value().steps[i].tb == i / c.steps % 2, rank, "step " + std::to_string(i)) && good;
      }
      return good;
    });
  }
}

}  // namespace
}  // namespace gc3
