// Copies in which sender and receiver each copy a part (offer.h), between processes.
#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <new>
#include <optional>
#include <random>
#include <string>

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
using testing::runs_right;

// Rank 0 sends its input to rank 1.
ir::Program one_way() {
  testing::ProgramBuilder b(model::CollectiveKind::alltonext, 2, 1, false, Protocol::Simple);
  b.tb(0, 1);
  b.send(testing::in(0));
  b.tb(1, ir::kNoRank, 0);
  b.recv(testing::out(0));
  return b.build();
}

// From now on the system does not let this process write other processes' memory.
bool refuse_writing() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(rules), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool many_sizes(cpu::Communicator& comm, cpu::ProcessProgram& program) {
  bool good = true;
  for (const std::size_t count : {8191, 8192, 8193, 9999, 16'384, 50'001, 70'003, 300'007, 1'000'003}) {
    good = runs_right(comm, program, count) && good;
  }
  return good;
}

TEST_CASE("a message that is half read and half written is right at every size and in any order of the ranks") {
  run_ranks(2, [](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 2));
    bool good = true;
    for (const std::uint64_t slot_bytes : {32'768, 131'072, 1'000'000}) {
      const auto program = prepare(*comm, one_way(), 2, slot_bytes);
      good = many_sizes(*comm, *program) && good;
      for (const std::uint32_t late : {0U, 1U}) {
        good = good && comm->barrier().ok();
        if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        good = runs_right(*comm, *program, 100'003) && good;
      }
    }
    return good;
  });
}

TEST_CASE("with a core for each rank, the sender writes a part") {
  if (std::thread::hardware_concurrency() < 2) return;
  void* page = mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  auto* written = new (page) std::atomic<bool>(false);
  run_ranks(2, [written](std::uint32_t rank) {
    const auto comm = join(meeting_of(rank, 2));
    const auto program = prepare(*comm, one_way(), 2, 1 << 20);
    bool good = true;
    // On a busy machine the receiver may be late for any number of calls. The barrier makes both end after the same
    // one.
    while (good && !*written) {
      good = comm->barrier().ok() && runs_right(*comm, *program, 60'001);
      if (rank == 0 && program->halves_written() != 0) *written = true;
      good = comm->barrier().ok() && good;
    }
    return good;
  });
  munmap(page, sizeof(std::atomic<bool>));
}

TEST_CASE("if the system refuses writes, from the beginning or later, the receiver reads everything") {
  for (const bool later : {false, true}) {
    run_ranks(2, [later](std::uint32_t rank) {
      if (!later && rank == 0 && !expect(refuse_writing(), rank, "no filter")) return false;
      const auto comm = join(meeting_of(rank, 2));
      if (later && !expect(refuse_writing(), rank, "no filter")) return false;
      const auto program = prepare(*comm, one_way(), 2, 1 << 17);
      return many_sizes(*comm, *program) &&
             expect(program->halves_written() == 0, rank, "data was written although the system refuses it");
    });
  }
}

// Whether a process is stopped, or has ended.
bool rests(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_ends = text.rfind(')');
  return name_ends == std::string::npos || text.find_first_of("TZ", name_ends) == name_ends + 2;
}

// Makes calls until one fails. After that no rank may write into the buffer any more, even if the other rank continues.
bool buffer_is_ones_own(cpu::Communicator& comm, cpu::ProcessProgram& program, pid_t goes_on = 0,
                        std::optional<double> timeout_s = {}) {
  constexpr std::size_t kCount = 100'000;
  std::vector<std::int32_t> in(kCount, 1);
  std::vector<std::int32_t> out(kCount);
  Status status;
  cpu::RankCall call{in.data(), out.data(), kCount, DataType::int32, ReduceOp::sum};
  call.timeout_s = timeout_s;
  while (status.ok()) status = program.run(call);
  std::fill(out.begin(), out.end(), -1);
  if (goes_on != 0) {
    while (!rests(goes_on)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(goes_on, SIGCONT);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return expect(out == std::vector<std::int32_t>(kCount, -1), comm.rank(),
                "the buffer was written after the call had failed");
}

TEST_CASE("after an aborted call no rank writes into its buffer") {
  std::mt19937 random(20261121);
  for (int world = 0; world < 20; ++world) {
    const auto after = std::chrono::microseconds(random() % 3000);
    run_ranks(2, [after](std::uint32_t rank) {
      const auto comm = join(meeting_of(rank, 2));
      const auto program = prepare(*comm, one_way(), 2, 1 << 20);
      if (!program->load().ok()) return false;
      std::thread aborting([&] {
        std::this_thread::sleep_for(after);
        if (rank == 1) comm->abort();
      });
      const bool good = buffer_is_ones_own(*comm, *program);
      aborting.join();
      return good;
    });
  }
}

TEST_CASE("a sender that was stopped at any moment does not write after it continues" * doctest::test_suite("waits")) {
  void* page = mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  auto* sender = static_cast<pid_t*>(page);
  std::mt19937 random(4711);
  for (int world = 0; world < 4; ++world) {
    const auto after = std::chrono::microseconds(random() % 3000);
    run_ranks(2, [&](std::uint32_t rank) {
      if (rank == 0) *sender = getpid();
      const auto comm = join(meeting_of(rank, 2));
      const auto program = prepare(*comm, one_way(), 2, 1 << 20);
      if (!program->load().ok()) return false;
      if (rank == 0) {
        std::thread([after] {
          std::this_thread::sleep_for(after);
          kill(getpid(), SIGSTOP);
        }).detach();
      }
      return buffer_is_ones_own(*comm, *program, rank == 1 ? *sender : 0, 0.5);
    });
  }
  munmap(page, sizeof(pid_t));
}

TEST_CASE("if a rank is killed during a shared copy, the other rank reports it") {
  std::mt19937 random(815);
  for (int world = 0; world < 30; ++world) {
    const auto victim = static_cast<std::uint32_t>(random() % 2);
    const auto after = std::chrono::microseconds(random() % 3000);
    Ranks ranks(2, [&](std::uint32_t rank) {
      const auto comm = join(meeting_of(rank, 2));
      const auto program = prepare(*comm, one_way(), 2, 1 << 20);
      if (!program->load().ok()) return false;
      if (rank == victim) {
        std::thread([after] {
          std::this_thread::sleep_for(after);
          kill(getpid(), SIGKILL);
        }).detach();
      }
      return buffer_is_ones_own(*comm, *program);
    });
    CHECK(ranks.succeeds(1 - victim));
  }
}

}  // namespace
}  // namespace gc3
