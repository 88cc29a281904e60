#include "gc3/runtime/core/meeting/peer_process.h"

#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <string>

#include "gc3/runtime/core/meeting/test_meeting.h"

namespace gc3::core {
namespace {

TEST_CASE("a process that ends while /proc is read has no text") {
  const pid_t other = fork();
  if (other == 0) {
    pause();
    _exit(0);
  }
  std::ifstream file("/proc/" + std::to_string(other) + "/stat");
  REQUIRE(file.is_open());
  REQUIRE(kill(other, SIGKILL) == 0);
  REQUIRE(waitpid(other, nullptr, 0) == other);
  CHECK(proc_text(file).empty());
  CHECK(!facts_of(other));
}

TEST_CASE("a pidfd and /proc tell the same about a process's users") {
  const auto says = [](pid_t process, bool own) {
    const FileDescriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
    REQUIRE(pidfd.valid());
    CHECK(is_own(process) == own);
    CHECK(is_own(process, pidfd) == own);
  };
  says(getpid(), true);
  if (geteuid() != 0) return;
  // Of root, but started by another user, as by a set-user-ID bit; and of another user altogether.
  for (const uid_t effective : {uid_t{0}, testing::kNobody}) {
    std::array<int, 2> changed{};
    REQUIRE(pipe(changed.data()) == 0);
    const testing::Process other([&] {
      if (setresuid(testing::kNobody, effective, effective) != 0) return "setresuid";
      if (write(changed[1], "x", 1) == 1) pause();
      return "was not killed";
    });
    char told = 0;
    REQUIRE(read(changed[0], &told, 1) == 1);
    says(other.id(), false);
    close(changed[0]);
    close(changed[1]);
  }
}

}  // namespace
}  // namespace gc3::core
