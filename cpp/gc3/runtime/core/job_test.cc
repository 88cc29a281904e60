// How a process that joins the same processes again, or some of them, uses their job again.
#include "gc3/runtime/core/hosts/job.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/meeting/peer_process.h"
#include "gc3/runtime/core/meeting/test_meeting.h"

namespace gc3::core::testing {
namespace {

constexpr double kTimeout = 50;  // seconds; no test waits so long

Result<std::unique_ptr<Group>> join(const std::shared_ptr<Jobs>& jobs, std::uint32_t rank, std::uint32_t size,
                                    const std::string& name = "") {
  Meeting meeting = meeting_of(rank, size);
  meeting.job += name;
  meeting.jobs = jobs;
  return Group::world(meeting, {kTimeout, false, false});
}

bool barrier(Group& group) {
  return group.begin({CallKind::barrier}).ok() && group.exchange({}, {}).ok() && (group.finish(), true);
}

struct Files {
  std::size_t memory = 0;
  std::size_t pidfds = 0;
  std::size_t all = 0;
};
Files files() {
  Files found;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string name = std::filesystem::read_symlink(file.path(), gone).string();
    found.memory += name.starts_with("/memfd:gc3") ? 1 : 0;
    found.pidfds += name.find("pidfd") != std::string::npos ? 1 : 0;
    ++found.all;
  }
  return found;
}

// The size of this process's address space in bytes.
std::uint64_t addresses() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  file >> pages;
  return pages * 4096;
}

void run(std::uint32_t size, const std::function<std::string(std::uint32_t rank)>& body) {
  std::vector<Process> all;
  for (std::uint32_t r = 0; r < size; ++r) all.emplace_back([&, r] { return body(r); });
  for (Process& process : all) CHECK(process.succeeds());
}

TEST_CASE("the same processes have one job, however often they join, under any name and as any ranks") {
  run(3, [](std::uint32_t rank) -> std::string {
    const auto jobs = std::make_shared<Jobs>();
    const auto first = join(jobs, rank, 3);
    if (!first.ok()) return first.error().str();
    const Files before = files();
    if (before.memory != 1 || before.pidfds != 2) return "descriptors of one job";
    std::vector<std::unique_ptr<Group>> groups;
    for (std::uint32_t i = 0; i < 20; ++i) {
      const std::uint32_t other = (rank + i) % 3;  // another rank each time
      auto again = join(jobs, other, 3, "again" + std::to_string(i));
      if (!again.ok()) return again.error().str();
      groups.push_back(std::move(again.value()));
      if (groups.back()->job() != first.value()->job()) return "another job";
      if (groups.back()->rank() != other || !barrier(*groups.back())) return "a barrier";
      if (groups.back()->process(other) != getpid()) return "who?";
    }
    const Files after = files();
    return after.all == before.all ? "" : "descriptors";
  });
}

TEST_CASE("some processes of a job use it for a communicator of their own") {
  run(3, [](std::uint32_t rank) -> std::string {
    const auto jobs = std::make_shared<Jobs>();
    auto all = join(jobs, rank, 3);
    if (!all.ok()) return all.error().str();
    if (rank != 1) {
      const auto two = join(jobs, rank == 2 ? 0 : 1, 2, " of two");
      if (!two.ok()) return two.error().str();
      if (two.value()->job() != all.value()->job() || !barrier(*two.value())) return "another job";
    }
    const auto alone = join(jobs, 0, 1, " alone");
    if (!alone.ok() || alone.value()->job() != all.value()->job()) return "another job alone";
    return barrier(*alone.value()) && barrier(*all.value()) ? "" : "a barrier";
  });
}

TEST_CASE("processes that are not all of one job get a new one, and those of one job go on") {
  run(3, [](std::uint32_t rank) -> std::string {
    const auto jobs = std::make_shared<Jobs>();
    Result<std::unique_ptr<Group>> two = join(jobs, rank % 2, rank == 2 ? 1 : 2, rank == 2 ? " one" : " two");
    if (!two.ok()) return two.error().str();
    const auto three = join(jobs, rank, 3, " three");
    if (!three.ok()) return three.error().str();
    if (three.value()->job() == two.value()->job() || files().memory != 2) return "the memory of other processes";
    return barrier(*three.value()) && barrier(*two.value()) ? "" : "a barrier";
  });
}

TEST_CASE("a job ends with its last communicator, and is not used again") {
  run(2, [](std::uint32_t rank) -> std::string {
    const auto jobs = std::make_shared<Jobs>();
    const std::size_t before = files().all;
    for (int i = 0; i < 3; ++i) {
      auto first = join(jobs, rank, 2, "first" + std::to_string(i));
      if (!first.ok()) return first.error().str();
      auto second = join(jobs, rank, 2, "second" + std::to_string(i));
      if (!second.ok() || second.value()->job() != first.value()->job()) return "another job";
      first.value().reset();
      if (!barrier(*second.value())) return "a barrier";
      second.value().reset();
      if (files().all != before) return "descriptors are left";
    }
    return "";
  });
}

TEST_CASE("a rank that has closed its communicators joins those that have not, with new memory") {
  run(2, [](std::uint32_t rank) -> std::string {
    const auto jobs = std::make_shared<Jobs>();
    auto first = join(jobs, rank, 2);
    if (!first.ok()) return first.error().str();
    if (rank == 1) first.value().reset();
    const auto second = join(jobs, rank, 2, " second");
    if (!second.ok()) return second.error().str();
    return barrier(*second.value()) ? "" : "a barrier";
  });
}

TEST_CASE("when a rank of one communicator is killed, the communicators without it go on") {
  std::vector<Process> ranks;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([rank]() -> std::string {
      const auto jobs = std::make_shared<Jobs>();
      auto all = join(jobs, rank, 3);
      if (!all.ok()) return all.error().str();
      if (rank == 2) return raise(SIGKILL) == 0 ? "" : "alive";
      auto two = join(jobs, rank, 2, " of two");
      if (!two.ok() || two.value()->job() != all.value()->job()) return "another job";
      if (barrier(*all.value())) return "a barrier with a rank that has ended";
      for (int i = 0; i < 100; ++i) {
        if (!barrier(*two.value())) return "a barrier";
        const auto again = join(jobs, rank, 2, "again" + std::to_string(i % 3));
        if (!again.ok() || again.value()->job() != all.value()->job() || !barrier(*again.value())) return "again";
      }
      // A group with the killed rank is refused at once, as often as somebody asks for it.
      for (int i = 0; i < 50; ++i) {
        const auto group = all.value()->subgroup({0, 1, 2}, "", {}, {});
        if (group.ok()) return "a group with a rank that has ended";
      }
      const auto group = two.value()->subgroup({1, 0}, "", {}, {});
      return group.ok() && barrier(*group.value()) ? "" : "a group";
    });
  }
  CHECK(ranks[0].succeeds());
  CHECK(ranks[1].succeeds());
  CHECK_FALSE(ranks[2].succeeds());
}

TEST_CASE("the memory of a group whose other rank was killed is used again") {
  std::vector<Process> ranks;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([rank]() -> std::string {
      auto all = join(nullptr, rank, 2);
      if (!all.ok()) return all.error().str();
      auto group = all.value()->subgroup({0, 1}, "", {}, {});
      if (!group.ok()) return group.error().str();
      if (rank == 1) return raise(SIGKILL) == 0 ? "" : "alive";
      while (all.value()->runs(1)) std::this_thread::sleep_for(1ms);
      const Job& job = *all.value()->job();
      // Of the size of a group's block, which the group has taken last.
      const std::uint64_t end = job.allocate(1, "a test").value().offset;
      group.value().reset();
      bool reused = false;
      for (int i = 0; i < 4; ++i) {
        auto alone = all.value()->subgroup({0}, "", {}, {});
        if (!alone.ok()) return alone.error().str();
      }
      for (std::uint64_t pages = 1; pages < 64; ++pages) {
        reused = reused || job.allocate(pages * 4096, "a test").value().offset < end;
      }
      return reused ? "" : "not freed";
    });
  }
  CHECK(ranks[0].succeeds());
  CHECK_FALSE(ranks[1].succeeds());
}

TEST_CASE("a fork does not use the jobs of its parent") {
  const auto jobs = std::make_shared<Jobs>();
  const auto parent = join(jobs, 0, 1, " fork");
  REQUIRE(parent.ok());
  Process child([&]() -> std::string {
    const auto own = join(jobs, 0, 1, " fork");
    if (!own.ok()) return own.error().str();
    return own.value()->job() != parent.value()->job() && barrier(*own.value()) ? "" : "the job of the parent";
  });
  CHECK(child.succeeds());
  CHECK(barrier(*parent.value()));
}

TEST_CASE("a host that names a job of other processes is refused") {
  Process guest([]() -> std::string {
    const auto jobs = std::make_shared<Jobs>();
    const auto own = join(jobs, 0, 1, " own");
    if (!own.ok()) return own.error().str();
    const auto made = join(jobs, 1, 2);
    if (made.ok()) return "joined";
    const std::string said = made.error().message;
    return said.find("has named a job that other processes have joined") != std::string::npos ? "" : said;
  });
  const FileDescriptor door = listening(0);
  const FileDescriptor at(accept(door.get(), nullptr, nullptr));
  Challenge challenge;
  challenge.nonce = Handshake::new_nonce().value();
  send_packet(at.get(), bytes_of(challenge));
  const auto hello = unpacked<Hello>(next_packet(at.get()));
  REQUIRE(hello);
  CHECK(hello->identity.known[0] != 0);
  CHECK(hello->identity.known[1] == 0);
  Answer answer;
  answer.proof = Handshake("", purpose_of(meeting_of(0, 2)), challenge.nonce, hello->nonce)
                     .proof(Handshake::Role::host, bytes_of(hello->identity));
  send_packet(at.get(), bytes_of(answer));
  std::string packet(bytes_of(Welcome{Head{Kind::welcome}, hello->identity.known[0], {4096, 1U << 20U}}));
  for (const pid_t process : {getpid(), pid_t{hello->identity.process}}) {
    packet += bytes_of(Member{process, 0, facts_of(process)->started});
  }
  send_packet(at.get(), packet);
  CHECK(guest.succeeds());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which take address space of their own
TEST_CASE("communicators are made and closed with few descriptors and little address space, without growth") {
  run(2, [](std::uint32_t rank) -> std::string {
    const auto jobs = std::make_shared<Jobs>();
    auto first = join(jobs, rank, 2);
    if (!first.ok()) return first.error().str();
    const rlimit few{64, 64};
    const rlimit little{addresses() + (96U << 20U), RLIM_INFINITY};  // of which thread stacks and the heap take most
    if (setrlimit(RLIMIT_NOFILE, &few) != 0 || setrlimit(RLIMIT_AS, &little) != 0) return "setrlimit";
    for (int i = 0; i < 50; ++i) {
      const auto again = join(jobs, rank, 2, " again");
      if (!again.ok()) return again.error().str();
    }
    std::uint64_t before = 0;
    for (int i = 0; i < 40'000; ++i) {  // of the least that can be allocated, 32 bytes, so many are more than 1 MiB
      const auto made = first.value()->subgroup({0, 1}, "", {}, {});
      if (!made.ok()) return made.error().str();
      if (i == 1000) before = addresses();
    }
    if (addresses() > before + (1U << 20U)) return "addresses";
    return first.value()->job()->mapped() == Window::kFirst ? "" : "more than one segment";
  });
}

TEST_CASE("a rank that cannot map the memory of a group tells the others, and all report the same") {
  run(3, [](std::uint32_t rank) -> std::string {
    auto first = join(nullptr, rank, 3);
    if (!first.ok()) return first.error().str();
    const std::shared_ptr<Job>& job = first.value()->job();
    std::vector<std::shared_ptr<std::uint8_t>> held;
    // The next group lies in a segment that only rank 0 has mapped: the first one is full.
    constexpr std::uint64_t kSmall = 1U << 14U;
    for (const std::uint64_t bytes : {std::uint64_t{1} << 20U, kSmall}) {
      while (rank == 0 && (held.empty() || job->offset_of(held.back().get()) < Window::kFirst)) {
        held.push_back(job->allocate_shared(bytes).value());
      }
      if (bytes != kSmall && !held.empty()) held.pop_back();
    }
    if (!barrier(*first.value())) return "barrier";
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    const rlimit little{addresses() + (8U << 20U), limit.rlim_max};
    if (rank == 1 && setrlimit(RLIMIT_AS, &little) != 0) return "setrlimit";
    const std::string said =
        "rank 1 (process " + std::to_string(first.value()->process(1)) + ") cannot map the memory of the communicator";
    const auto says = [&](const auto& made, const std::string& name) {
      return !made.ok() && made.error().code == ErrorCode::SystemRefused &&
             made.error().message.starts_with(name + said);
    };
    // It comes last, because the first one takes the memory, and could not.
    if (rank == 1 && !barrier(*first.value())) return "barrier";
    auto rows = first.value()->subgroup({0, 1, 2}, "rows", {}, {});
    if (rank != 1 && !barrier(*first.value())) return "barrier";
    if (rank != 1 && rows.ok()) {
      Group& made = *rows.value();
      Status status = made.begin({CallKind::barrier});
      if (status.ok()) {
        const auto met = made.exchange({}, {});
        status = met.ok() ? Status() : Status(met.error());
      }
      rows = status.ok() ? Diagnostic(ErrorCode::Internal, "met") : std::move(status.error());
    }
    if (!says(rows, "group rows: ")) return rows.ok() ? "a group" : rows.error().str();
    if (const auto made = first.value()->split(0, rank, {}); !says(made, "")) {
      return made.ok() ? "a split" : made.error().str();
    }
    const auto shrunk = first.value()->shrink({}, {});
    if (shrunk.ok()) return "shrunk";
    if (shrunk.error().message.find("rank 1 (process ") != 0) return shrunk.error().str();  // who may come first here
    if (rank == 1 && setrlimit(RLIMIT_AS, &limit) != 0) return "setrlimit";
    const auto made = first.value()->subgroup({0, 1, 2}, "", {}, {});
    if (!made.ok()) return made.error().str();
    return barrier(*first.value()) ? "" : "the group it was made of";
  });
}

TEST_CASE("a rank that cannot map the memory of a job tells the others") {
  run(2, [](std::uint32_t rank) -> std::string {
    const rlimit little{addresses() + (8U << 20U), RLIM_INFINITY};
    if (rank == 1 && setrlimit(RLIMIT_AS, &little) != 0) return "setrlimit";
    const auto made = join(nullptr, rank, 2);
    if (made.ok() || made.error().code != ErrorCode::SystemRefused) return made.ok() ? "joined" : made.error().str();
    return made.error().message.starts_with("rank 1 (process ") ? "" : made.error().str();
  });
}
#endif

TEST_CASE("a thousand communicators of one job share one window") {
  run(2, [](std::uint32_t rank) -> std::string {
    auto first = join(nullptr, rank, 2);
    if (!first.ok()) return first.error().str();
    const Files before = files();
    const std::uint64_t start = addresses();
    std::vector<std::unique_ptr<Group>> groups;
    for (int i = 0; i < 1000; ++i) {
      auto made = first.value()->subgroup({1, 0}, "", {}, {});
      if (!made.ok() || !barrier(*made.value())) return "a group";
      groups.push_back(std::move(made.value()));
    }
    if (files().all != before.all) return "descriptors";
    return addresses() - start < (256U << 20U) ? "" : "address space";
  });
}

}  // namespace
}  // namespace gc3::core::testing
