// The tests of groups: processes that join one, and the group of this process alone.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gc3/runtime/core/group.h"

namespace gc3::core::testing {

inline constexpr double kTimeout = 50;  // seconds; no test waits so long
inline constexpr double kShort = 2.5;

// The group of a job of this process alone.
inline std::unique_ptr<Group> alone() {
  Meeting meeting;
  meeting.job = "group test " + std::to_string(getpid());
  auto made = Group::world(meeting, {kTimeout, false, false});
  REQUIRE(made.ok());
  return std::move(made.value());
}

// Processes that join one group. `body` returns whether the rank passes. Ranks that do not end by themselves are killed
// when the others have ended. `apart`: each is in a session of its own.
using GroupBody = std::function<bool(Group& group)>;
inline void run_ranks(std::uint32_t size, const GroupBody& body, std::uint32_t ending, double timeout_s = kTimeout,
                      WaitMode wait = WaitMode::automatic, bool apart = false) {
  Meeting meeting;
  if (apart) meeting.secret = "a secret of 24 bytes ...";  // without one they do not trust each other
  meeting.size = size;
  meeting.job = "group test of " + std::to_string(getpid());
  std::vector<pid_t> processes;
  for (meeting.rank = 0; meeting.rank < size; ++meeting.rank) {
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (apart) setsid();
      auto group = Group::world(meeting, {timeout_s, false, false, false, {}, wait});
      _exit(group.ok() && body(*group.value()) ? 0 : 1);
    }
    processes.push_back(process);
  }
  for (std::uint32_t r = 0; r < size; ++r) {
    if (r >= ending) kill(processes[r], SIGKILL);
    int status = 0;
    CHECK(waitpid(processes[r], &status, 0) == processes[r]);
    if (r < ending) CHECK_MESSAGE(status == 0, "rank ", r);
  }
}
inline void run_ranks(std::uint32_t size, const GroupBody& body) { run_ranks(size, body, size); }

// Bytes that the system has allocated for the shared memory of this process's job.
inline std::uint64_t held() {
  std::uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string name = std::filesystem::read_symlink(file.path(), gone).string();
    struct stat about{};
    if (name.starts_with("/memfd:gc3") && stat(file.path().c_str(), &about) == 0) {
      bytes += static_cast<std::uint64_t>(about.st_blocks) * 512;
    }
  }
  return bytes;
}

}  // namespace gc3::core::testing
