// The rendezvous under unusual conditions: processes of other PID namespaces, a system without SO_PEERPIDFD, pidfds or
// /proc, a rank 0 without a valid proof, and a process that was forked from a rank.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/meeting/kinship.h"
#include "gc3/runtime/core/meeting/peer_process.h"
#include "gc3/runtime/core/meeting/rendezvous.h"
#include "gc3/runtime/core/meeting/test_meeting.h"

namespace gc3::core {
namespace {

using namespace testing;
using namespace std::chrono_literals;

constexpr std::uint32_t kPeerPidfd = 77;  // SO_PEERPIDFD

// From here on, SO_PEERPIDFD fails in this process as on a kernel that does not have it, and `refused` as in a
// container whose profile does not allow it.
bool forget_peer_pidfd(std::uint32_t refused = ~0U) {
  const auto loads = [](std::size_t at) { return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<__u32>(at)}; };
  sock_filter code[] = {
      loads(offsetof(seccomp_data, nr)),
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, refused},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, static_cast<__u32>(SYS_getsockopt)},
      loads(offsetof(seccomp_data, args) + 2 * sizeof(__u64)),
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, kPeerPidfd},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOPROTOOPT},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(code)), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Two ranks meet where `started` starts processes; false: the system allows none there, which is `refusal`.
template <class Started>
bool ranks_meet(const Started& started, const char* refusal) {
  Process trial = started([] { return std::string(); });
  if (!trial.succeeds()) {
    MESSAGE("skipped: the system does not ", refusal);
    return false;
  }
  Process host = started([] { return meets(meeting_of(0, 2)); });
  Process guest = started([] { return meets(meeting_of(1, 2)); });
  CHECK(guest.succeeds());
  CHECK(host.succeeds());
  return true;
}

TEST_CASE("without SO_PEERPIDFD the ranks meet as well, and a closed end is detected") {
  const auto old_system = [](const std::function<std::string()>& body) {
    return Process([body] { return forget_peer_pidfd() ? body() : "no filter"; });
  };
  if (!ranks_meet(old_system, "allow filters of system calls")) return;
  Process looks = old_system([]() -> std::string {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return "socketpair";
    int unknown = 0;
    socklen_t length = sizeof unknown;
    if (getsockopt(pair[0], SOL_SOCKET, kPeerPidfd, &unknown, &length) == 0) return "the system knows SO_PEERPIDFD";
    const Result<PeerProcess> found = process_at(pair[0]);
    if (!found.ok()) return found.error().str();
    if (found.value().process != getpid() || !found.value().pidfd.valid()) return "another process";
    close(pair[1]);
    const Result<PeerProcess> gone = process_at(pair[0]);
    return !gone.ok() && gone.error().code == ErrorCode::RankLost ? "" : "a closed end was not noticed";
  });
  CHECK(looks.succeeds());
}

TEST_CASE("where pidfds are refused, the ranks meet as well, and the end of a process is noticed") {
  const auto without = [](const std::function<std::string()>& body) {
    return Process([body] { return forget_peer_pidfd(SYS_pidfd_open) ? body() : "no filter"; });
  };
  if (!ranks_meet(without, "allow filters of system calls")) return;
  Process looks = without([]() -> std::string {
    if (syscall(SYS_pidfd_open, getpid(), 0) >= 0) return "the system gives pidfds";
    const pid_t child = fork();
    if (child == 0) {
      std::thread([] {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
      }).detach();
      syscall(SYS_exit, 0);  // only the main thread ends
    }
    while (facts_of(child).value().state != 'Z') std::this_thread::sleep_for(1ms);
    const Result<PeerProcess> found = process_named(child, facts_of(child).value().started);
    if (!found.ok()) return found.error().str();
    const auto ended = [&] {
      pollfd watched = watch_for_end(found.value().pidfd.get());
      return poll(&watched, 1, 0) > 0 && has_ended(watched);
    };
    if (ended()) return "it lives";
    kill(child, SIGKILL);
    siginfo_t about{};
    if (waitid(P_PID, static_cast<id_t>(child), &about, WEXITED | WNOWAIT) != 0) return "waitid";
    if (!ended()) return "it has ended";
    waitpid(child, nullptr, 0);
    return ended() ? "" : "it is gone";
  });
  CHECK(looks.succeeds());
}

TEST_CASE("without /proc the ranks of one launcher meet, where the system tells it otherwise") {
  const auto without = [](const std::function<std::string()>& body) {
    return Process([body] {
      const bool hidden = unshare(CLONE_NEWNS) == 0 && mount("", "/", "", MS_REC | MS_PRIVATE, "") == 0 &&
                          mount("none", "/proc", "tmpfs", 0, "") == 0;
      return hidden && facts_of(getpid()) ? body() : "no";
    });
  };
  ranks_meet(without, "tell it, or does not allow a new mount namespace");
}

TEST_CASE("ranks whose launcher is not in their PID namespace meet") {
  const auto meet_in_there = [](bool only_try) {
    return Process([=] {
      if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0 || mount("", "/", "", MS_REC | MS_PRIVATE, "") != 0) {
        return std::string("unshare");
      }
      const Signal mounted;
      const Process first([&] {  // process 1, with which the namespace ends
        if (mount("proc", "/proc", "proc", 0, "") == 0) mounted.give();
        pause();
        return std::string();
      });
      mounted.await();
      if (only_try) return std::string();
      Process host([] { return getppid() == 0 ? meets(meeting_of(0, 2)) : "a parent"; });
      Process guest([] { return getppid() == 0 ? meets(meeting_of(1, 2)) : "a parent"; });
      const bool met = guest.succeeds() && host.succeeds();
      return std::string(met ? "" : "not met");
    });
  };
  Process trial = meet_in_there(true);
  if (!trial.succeeds()) {
    MESSAGE("skipped: the system does not allow a new PID namespace");
    return;
  }
  Process both = meet_in_there(false);
  CHECK(both.succeeds());
}

TEST_CASE("ranks with unknown launchers of different times or control groups are of different launches") {
  const auto second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  Origin one;
  one.process = one.top = 10;
  one.started = 100 * second;
  one.control_group = "0::/a";
  Origin other = one;
  other.rank = 1;
  other.process = other.top = 11;
  const Kinship open("a job", false);
  const Kinship closed("a job", true);
  const auto may_join = [&](const Kinship& kinship) { return kinship.may_join(one, other); };
  CHECK(may_join(open));
  other.started += 3 * second;
  CHECK_FALSE(may_join(open));
  CHECK(open.difference(one, other).find("a start within 2 s") != std::string::npos);
  CHECK(may_join(closed));
  other.started = one.started;
  other.control_group = "0::/b";
  CHECK_FALSE(may_join(open));
  other.control_group = one.control_group;
  one.started = other.started = 0;  // nothing is known
  CHECK_FALSE(may_join(open));
  CHECK(may_join(closed));
}

// A process in a PID namespace of its own, where it is process 1.
Process contained(const std::function<std::string()>& body) {
  return Process([body] {
    if (unshare(CLONE_NEWPID) != 0) return std::string("unshare");
    Process inner([body] { return getpid() == 1 ? body() : "not alone"; });
    return inner.succeeds() ? std::string() : std::string("the process in the namespace has failed");
  });
}

bool contains() {
  Process trial = contained([] { return std::string(); });
  return trial.succeeds();
}

TEST_CASE("a rank of another PID namespace is turned away with a reason, and the others meet" *
          doctest::test_suite("waits")) {
  if (!contains()) {
    MESSAGE("skipped: the system does not allow a new PID namespace");
    return;
  }
  SUBCASE("as a guest") {
    Process host = rank(0, 2);
    Process alien = contained([] { return fails(meeting_of(1, 2, 3), "is in another PID namespace"); });
    CHECK(alien.succeeds());
    Process guest = rank(1, 2);
    CHECK(guest.succeeds());
    CHECK(host.succeeds());
  }
  SUBCASE("as rank 0") {
    // Far longer than a loaded machine takes to start the guest, for the host must still be there.
    Process host = contained([] { return fails(meeting_of(0, 2, 6), "a process is in another PID namespace"); });
    Process guest([] { return fails(meeting_of(1, 2, 3), "is in another PID namespace"); });
    CHECK(guest.succeeds());
    CHECK(host.succeeds());
  }
}

// The message that a guest gets after the answer; the guest follows the protocol until then.
std::string told_after_the_answer(const std::function<void(Hello&)>& change) {
  const FileDescriptor guest = connected();
  const auto challenge = unpacked<Challenge>(next_packet(guest.get()));
  if (!challenge) return "no challenge";
  Hello hello = hello_for(*challenge, 1);
  change(hello);
  hello.proof = Handshake("", purpose_of(meeting_of(1, 2)), challenge->nonce, hello.nonce)
                    .proof(Handshake::Role::guest, bytes_of(hello.identity));
  send_packet(guest.get(), bytes_of(hello));
  if (!unpacked<Answer>(next_packet(guest.get()))) return "no answer";
  return next_packet(guest.get());
}

TEST_CASE("a process that pretends to be another process is turned away, and the ranks meet") {
  Process host = rank(0, 2);
  Process relay([] {
    const std::string told = told_after_the_answer([](Hello& hello) { hello.identity.process = getppid(); });
    return told.find("pretends to be that process") != std::string::npos ? "" : "told: " + told;
  });
  CHECK(relay.succeeds());
  Process guest = rank(1, 2);
  CHECK(guest.succeeds());
  CHECK(host.succeeds());
}

TEST_CASE("with a secret, a rank uses no message of a rank 0 that has given no proof" * doctest::test_suite("waits")) {
  const std::string lie = "do as I say";
  const auto plays_host = [&](Kind kind, bool challenges) {
    return Process([=] {
      const FileDescriptor door = listening(0);
      for (;;) {
        const FileDescriptor guest(accept(door.get(), nullptr, nullptr));
        if (challenges) {
          Challenge challenge;
          challenge.nonce = Handshake::new_nonce().value();
          send_packet(guest.get(), bytes_of(challenge));
          next_packet(guest.get());
        }
        send_text(guest.get(), kind, lie);
      }
      return std::string();
    });
  };
  for (const Kind kind : {Kind::refusal, Kind::elsewhere}) {
    for (const bool challenges : {false, true}) {
      const Process liar = plays_host(kind, challenges);
      Process guest([&] {
        Meeting meeting = meeting_of(1, 2, 0.5);
        meeting.secret = kSecret;
        const std::string told = meets(meeting);
        const bool good = told.find("rank 0 has not called gc3.init()") != std::string::npos;
        return good && told.find(lie) == std::string::npos ? "" : "told: " + told;
      });
      CHECK(guest.succeeds());
    }
  }
}

TEST_CASE("with a secret, a late rank gets the reason why rank 0 has given up, after its proof") {
  const auto with_secret = [](std::uint32_t r, double timeout_s) {
    Meeting meeting = meeting_of(r, 3, timeout_s);
    meeting.secret = kSecret;
    return meeting;
  };
  const Signal given_up;
  const Signal told;
  Process late([&] {
    given_up.await();
    return fails(with_secret(1, 20), "has given up: of 3 ranks these have not joined within 0.5 s: 1, 2");
  });
  Process host([&] {
    const std::string wrong = fails(with_secret(0, 0.5), "have not joined within 0.5 s: 1, 2");
    given_up.give();
    told.await();
    return wrong;
  });
  CHECK(late.succeeds());
  told.give();
  CHECK(host.succeeds());
}

// Whether a process listens on the name for late ranks.
bool is_answered() {
  const FileDescriptor guest(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const Address address = address_of(meeting_of(1, 2), kGone);
  return connect(guest.get(), address.get(), address.length) == 0;
}

TEST_CASE("a process that was forked after a meeting has failed does not keep the socket for late ranks") {
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  Process host([&] {
    const std::string wrong = fails(meeting_of(0, 2, 0.1), "have not joined within 0.1 s: 1");
    while (!is_answered()) std::this_thread::sleep_for(1ms);
    const pid_t forked = fork();
    if (forked == 0) {
      pause();
      _exit(0);
    }
    return write(pipes[1], &forked, sizeof forked) == sizeof forked ? wrong : "write";
  });
  CHECK(host.succeeds());
  pid_t forked = 0;
  REQUIRE(read(pipes[0], &forked, sizeof forked) == sizeof forked);
  CHECK(kill(forked, 0) == 0);
  CHECK_FALSE(is_answered());
  kill(forked, SIGKILL);
  close(pipes[0]);
  close(pipes[1]);
}

}  // namespace
}  // namespace gc3::core
