// For tests: ranks that are processes, which are forked from the test program and join a communicator.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gc3/runtime/cpu/communicator.h"
#include "gc3/runtime/cpu/test_reference.h"

namespace gc3::testing {

inline core::Meeting meeting_of(std::uint32_t rank, std::uint32_t size, double timeout_s = 20) {
  core::Meeting meeting;
  meeting.rank = rank;
  meeting.size = size;
  meeting.job = "test " + std::to_string(getppid());  // one world of this test program at a time
  meeting.timeout_s = timeout_s;
  return meeting;
}

// The body of a rank; returns whether the rank passes.
using RankBody = std::function<bool(std::uint32_t rank)>;

class Ranks {
 public:
  Ranks(std::uint32_t count, const RankBody& body) {
    for (std::uint32_t r = 0; r < count; ++r) {
      const pid_t process = fork();
      if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(body(r) ? 0 : 1);
      }
      processes_.push_back(process);
      ended_.push_back(false);
    }
  }
  ~Ranks() {
    for (std::size_t r = 0; r < processes_.size(); ++r) {
      if (!ended_[r]) kill(processes_[r], SIGKILL);
    }
    for (std::size_t r = 0; r < processes_.size(); ++r) {
      if (!ended_[r]) waitpid(processes_[r], nullptr, 0);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void signal(std::uint32_t rank, int number) const { kill(processes_[rank], number); }
  // Whether the rank passes within the time.
  bool succeeds(std::uint32_t rank, double within_s = 60) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(within_s);
    int status = 0;
    while (waitpid(processes_[rank], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ended_[rank] = true;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  std::vector<pid_t> processes_;
  std::vector<bool> ended_;
};

// A number that all ranks see, made before they are.
class SharedNumber {
 public:
  SharedNumber()
      : page_(mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (page_ == MAP_FAILED) std::abort();
  }
  ~SharedNumber() { munmap(page_, sizeof(std::uint64_t)); }
  SharedNumber(const SharedNumber&) = delete;
  SharedNumber& operator=(const SharedNumber&) = delete;

  std::atomic_ref<std::uint64_t> operator*() const { return std::atomic_ref(*static_cast<std::uint64_t*>(page_)); }
  void wait_for(std::uint64_t least) const {
    while ((**this).load() < least) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  void* page_;
};

// The moment at which a rank ended or stopped itself. How long the others take to notice is counted from there, so that
// the time in which a machine under load starts them does not matter.
class Moment {
 public:
  void note() const { (*nanoseconds_).store(now()); }
  double seconds_since() const { return static_cast<double>(now() - (*nanoseconds_).load()) * 1e-9; }

 private:
  static std::uint64_t now() {
    return static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  }
  SharedNumber nanoseconds_;
};

// All ranks run the same body, and all must pass.
inline void run_ranks(std::uint32_t count, const RankBody& body) {
  Ranks ranks(count, body);
  for (std::uint32_t r = 0; r < count; ++r) CHECK_MESSAGE(ranks.succeeds(r), "rank ", r, " of ", count);
}

// For use in a rank: prints a failure to stderr, because the test framework does not see this process.
inline bool expect(bool condition, std::uint32_t rank, const std::string& what) {
  if (!condition) std::fprintf(stderr, "rank %u: %s\n", rank, what.c_str());
  return condition;
}

// Ranks that read each other's memory whenever they can, even if that is slower.
inline std::unique_ptr<cpu::Communicator> join(const core::Meeting& meeting, double timeout_s = 30,
                                               core::WaitMode wait = core::WaitMode::automatic) {
  auto made = cpu::Communicator::init(meeting, {timeout_s, true, true, false, {}, wait});
  if (!expect(made.ok(), meeting.rank, made.ok() ? "" : made.error().str())) _exit(2);
  return std::move(made).value();
}

inline std::shared_ptr<cpu::ProcessProgram> prepare(cpu::Communicator& comm, const ir::Program& program,
                                                    std::uint32_t slots = 0, std::uint64_t slot_bytes = 0) {
  auto made = comm.prepare(ir::as_read(program), slots, slot_bytes);
  if (!expect(made.ok(), comm.rank(), made.ok() ? "" : made.error().str())) _exit(2);
  return std::move(made).value();
}

// Runs on fresh buffers and checks this rank's output.
inline bool runs_right(cpu::Communicator& comm, cpu::ProcessProgram& program, std::size_t count,
                       DataType type = DataType::int32, ReduceOp op = ReduceOp::sum) {
  const std::uint32_t rank = comm.rank();
  Buffers buffers(program.plan().collective, count, type, op, rank);
  const Status status = program.run({buffers.input_at[rank], buffers.output_at[rank], count, type, op});
  if (!expect(status.ok(), rank, status.ok() ? "" : status.error().str())) return false;
  const auto difference = buffers.difference();
  return expect(!difference.has_value(), rank, "count " + std::to_string(count) + ": " + difference.value_or(""));
}

}  // namespace gc3::testing
