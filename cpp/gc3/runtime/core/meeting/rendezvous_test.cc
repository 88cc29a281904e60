// The rendezvous with processes that are no rank of the job, as guests and in the place of rank 0.
#include "gc3/runtime/core/meeting/rendezvous.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/meeting/peer_process.h"
#include "gc3/runtime/core/meeting/rendezvous_wire.h"
#include "gc3/runtime/core/meeting/test_meeting.h"

namespace gc3::core {
namespace {

using namespace testing;
using namespace std::chrono_literals;

TEST_CASE("guests that do not follow the protocol are turned away, and the ranks meet") {
  const auto meet_beside = [](const std::function<void()>& guest) {
    Process host = rank(0, 2);
    Process hostile([&] {
      guest();
      return std::string();
    });
    CHECK(hostile.succeeds());
    Process other = rank(1, 2);
    CHECK(other.succeeds());
    CHECK(host.succeeds());
  };
  SUBCASE("disconnects") {
    meet_beside([] {
      for (int i = 0; i < 1000; ++i) connected();
    });
  }
  SUBCASE("garbage of every length, with descriptors") {
    meet_beside([] {
      for (std::size_t size = 0; size < 400; ++size) {
        const FileDescriptor guest = connected();
        const std::string junk(size, static_cast<char>(size));
        iovec data{const_cast<char*>(junk.data()), junk.size()};
        alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = space;
        message.msg_controllen = sizeof space;
        cmsghdr* rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        const int sent = guest.get();
        std::memcpy(CMSG_DATA(rights), &sent, sizeof sent);
        sendmsg(guest.get(), &message, MSG_NOSIGNAL);
      }
    });
  }
  SUBCASE("a hello with an invalid proof, and one of an earlier rendezvous") {
    meet_beside([] {
      std::string earlier;
      for (int i = 0; i < 50; ++i) {
        const FileDescriptor guest = connected();
        const auto challenge = unpacked<Challenge>(next_packet(guest.get()));
        Hello hello = hello_for(*challenge, 1);
        if (earlier.empty()) earlier = bytes_of(hello);
        hello.proof[0] ^= 1U;
        send_packet(guest.get(), i % 2 == 0 ? bytes_of(hello) : std::string_view(earlier));
        Head answer;
        const std::string packet = next_packet(guest.get());
        if (packet.size() != sizeof answer) _exit(1);
        std::memcpy(&answer, packet.data(), sizeof answer);
        if (answer.kind != Kind::unproven) _exit(1);
      }
    });
  }
  SUBCASE("silence, by more guests than there are descriptors") {
    Process host([] {
      const rlimit few{40, 40};
      setrlimit(RLIMIT_NOFILE, &few);
      return meets(meeting_of(0, 2));
    });
    std::vector<Process> silent;
    for (int i = 0; i < 40; ++i) {
      silent.emplace_back([] {
        std::vector<FileDescriptor> guests;
        for (int g = 0; g < 20; ++g) guests.push_back(connected());
        std::this_thread::sleep_for(std::chrono::seconds(kSilentOnPurpose));
        return std::string();
      });
    }
    std::this_thread::sleep_for(300ms);
    Process other = rank(1, 2);
    CHECK(other.succeeds());
    CHECK(host.succeeds());
  }
  SUBCASE("all kinds at once, while four ranks start") {
    const auto in_turn = [](const std::function<void(int)>& say) {
      return Process([say] {
        std::vector<FileDescriptor> held;
        for (int i = 0; i < 2000; ++i) {
          held.push_back(connected());
          say(held.back().get());
          if (held.size() > 50) held.erase(held.begin());
        }
        return std::string();
      });
    };
    std::vector<Process> hostile;
    hostile.push_back(in_turn([](int) {}));
    hostile.push_back(in_turn([](int guest) { send_packet(guest, "\2"); }));
    hostile.push_back(in_turn([](int guest) { send_packet(guest, std::string(sizeof(Hello), '\x5a')); }));
    hostile.push_back(in_turn([recorded = std::make_shared<std::string>()](int guest) {
      const auto challenge = unpacked<Challenge>(next_packet(guest));
      if (challenge && recorded->empty()) {
        Hello hello = hello_for(*challenge, 1);
        recorded->assign(bytes_of(hello));
      } else {
        send_packet(guest, *recorded);
      }
    }));
    std::vector<Process> members;
    for (const std::uint32_t r : {3U, 0U, 1U, 2U}) members.push_back(rank(r, 4));
    for (Process& member : members) CHECK(member.succeeds());
  }
  SUBCASE("many processes of another user") {
    if (geteuid() != 0) {
      MESSAGE("skipped: only root can be another user");
      return;
    }
    Process host = rank(0, 4);
    std::vector<Process> foreign;
    for (int i = 0; i < 4; ++i) {
      const Address address = address_of(meeting_of(0, 4), 0);  // root's
      foreign.emplace_back(
          [address] {
            for (;;) {
              const FileDescriptor guest(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
              static_cast<void>(connect(guest.get(), address.get(), address.length));
            }
            return std::string();
          },
          kNobody);
    }
    std::vector<Process> others;
    for (std::uint32_t r = 1; r < 4; ++r) others.push_back(rank(r, 4));
    for (Process& other : others) CHECK(other.succeeds());
    CHECK(host.succeeds());
  }
}

// Another user's process that listens on the first names of root's job, and on the name of a rank 0 that has given up.
// It sends nothing, or pretends to be rank 0.
Process impostor(std::uint32_t names, bool listens = true) {
  std::vector<Address> addresses;
  for (std::uint32_t which = 0; which < names; ++which) addresses.push_back(address_of(meeting_of(0, 2), which));
  if (listens) addresses.push_back(address_of(meeting_of(0, 2), kGone));
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  Process process(
      [&] {
        std::vector<FileDescriptor> held;
        for (const Address& address : addresses) {
          held.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET, 0));
          if (bind(held.back().get(), address.get(), address.length) != 0) return std::string("bind");
          if (listens) listen(held.back().get(), 1000);
        }
        if (write(ready[1], "r", 1) != 1) return std::string("write");
        while (!listens) pause();
        for (;;) {
          const FileDescriptor guest(accept(held[0].get(), nullptr, nullptr));
          Challenge challenge;
          send_packet(guest.get(), bytes_of(challenge));
          if (!next_packet(guest.get()).empty()) return std::string("a rank has sent data to another user");
        }
      },
      kNobody);
  char byte = 0;
  CHECK(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  return process;
}

TEST_CASE("another user in the place of rank 0 gets no data; if the ranks cannot meet, they report it") {
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can be another user");
    return;
  }
  SUBCASE("on some of the names") {
    const Process other_user = impostor(kNames - 1);
    Process guest = rank(1, 2);
    std::this_thread::sleep_for(50ms);
    Process host = rank(0, 2);
    CHECK(guest.succeeds());
    CHECK(host.succeeds());
  }
  SUBCASE("on all of them, without listening there") {
    const Process other_user = impostor(kNames, false);
    Process guest(
        [] { return fails(meeting_of(1, 2, 20), "other processes hold all names of the job's socket, on sockets"); });
    Process host([] {
      const std::string wrong =
          fails(meeting_of(0, 2, 20), "other processes hold all names of the job's socket, on sockets");
      if (wrong.empty())
        std::this_thread::sleep_for(std::chrono::seconds(kSilentOnPurpose));  // meanwhile late ranks ask
      return wrong;
    });
    CHECK(guest.succeeds());
  }
  SUBCASE("on all of them") {
    const Process other_user = impostor(kNames);
    Process guest([] { return fails(meeting_of(1, 2), "of user 65534"); });
    Process host([] { return fails(meeting_of(0, 2), "user 65534 (process "); });
    CHECK(guest.succeeds());
    CHECK(host.succeeds());
    // With a secret there are names that cannot be guessed.
    const auto with_secret = [](std::uint32_t r) {
      return Process([r] {
        Meeting meeting = meeting_of(r, 2);
        meeting.secret = kSecret;
        return meets(meeting);
      });
    };
    Process knowing_guest = with_secret(1);
    Process knowing_host = with_secret(0);
    CHECK(knowing_guest.succeeds());
    CHECK(knowing_host.succeeds());
  }
}

TEST_CASE("a rank with another secret gets an error at once; rank 0 waits for the right ranks") {
  const auto with = [](std::uint32_t r, std::uint32_t size, const char* secret) {
    Meeting meeting = meeting_of(r, size, 20);
    meeting.secret = secret;
    return meeting;
  };
  for (const char* other : {"", "another secret, also long"}) {
    Process host([&] { return meets(with(0, 2, kSecret)); });
    Process wrong([&] { return fails(with(1, 2, other), "has another GC3_SECRET than this rank"); });
    CHECK(wrong.succeeds());
    Process right([&] { return meets(with(1, 2, kSecret)); });
    CHECK(right.succeeds());
    CHECK(host.succeeds());
  }
}

// Acts as rank 0 of the same user until the welcome, which names the `job`.
std::string play_host(const std::function<void(std::vector<Member>&)>& change, FileDescriptor file, int times = 1,
                      std::uint64_t job = 0) {
  const FileDescriptor door = listening(0);
  const FileDescriptor guest(accept(door.get(), nullptr, nullptr));
  Challenge challenge;
  challenge.nonce = Handshake::new_nonce().value();
  send_packet(guest.get(), bytes_of(challenge));
  const auto hello = unpacked<Hello>(next_packet(guest.get()));
  if (!hello) return "no hello";
  Answer answer;
  answer.proof = Handshake("", purpose_of(meeting_of(0, 2)), challenge.nonce, hello->nonce)
                     .proof(Handshake::Role::host, bytes_of(hello->identity));
  send_packet(guest.get(), bytes_of(answer));
  std::vector<Member> members{{getpid(), 0, facts_of(getpid())->started},
                              {hello->identity.process, 0, facts_of(hello->identity.process)->started}};
  change(members);
  std::string packet(bytes_of(Welcome{Head{Kind::welcome}, job, {0, 4096}}));
  for (const Member& member : members) packet += bytes_of(member);
  iovec data{packet.data(), packet.size()};
  const std::vector<int> sent(static_cast<std::size_t>(times), file.get());
  const std::size_t bytes = sent.size() * sizeof(int);
  alignas(cmsghdr) char space[CMSG_SPACE(8 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (file.valid()) {
    message.msg_control = space;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(rights), sent.data(), bytes);
  }
  sendmsg(guest.get(), &message, MSG_NOSIGNAL);
  next_packet(guest.get());
  return "";
}

TEST_CASE("the welcome of rank 0 is checked") {
  const auto sealed = [] { return FileDescriptor(dup(SharedMemory::create().value().descriptor())); };
  const auto told = [](const std::string& said, const std::function<void(std::vector<Member>&)>& change,
                       FileDescriptor file, std::uint64_t job = 0) {
    Process guest([&] { return fails(meeting_of(1, 2), said); });
    CHECK(play_host(change, std::move(file), 1, job) == "");
    CHECK_MESSAGE(guest.succeeds(), said);
  };
  const auto nothing = [](std::vector<Member>&) {};
  told("has sent a malformed list of ranks", nothing, {});
  told("has sent a malformed list of ranks", nothing, sealed(), 7);
  told("has named a job that this process has not joined", nothing, {}, 7);
  told("has sent a malformed list of ranks", [](std::vector<Member>& m) { m.pop_back(); }, sealed());
  told("has sent a malformed list of ranks", [](std::vector<Member>& m) { m.push_back(m[0]); }, sealed());
  told("not sealed", nothing, FileDescriptor(memfd_create("gc3-test", MFD_CLOEXEC)));
  told("another kind of file", nothing, FileDescriptor(open("/dev/null", O_RDWR | O_CLOEXEC)));
  told("says that rank 0 is process", [](std::vector<Member>& m) { m[0].process = 1; }, sealed());
  told("says that rank 1 is process", [](std::vector<Member>& m) { m[1].process = getpid(); }, sealed());
  told("says that rank 1 is process -1", [](std::vector<Member>& m) { m[1].process = -1; }, sealed());
  told("has ended while joining", [](std::vector<Member>& m) { ++m[0].started; }, sealed());
}

TEST_CASE("a guest keeps no descriptors beyond the expected one") {
  const auto count = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  for (const int times : {2, 3, 8}) {
    Process guest([&] {
      const auto before = count();
      const std::string wrong = fails(meeting_of(1, 2), "has sent a malformed list of ranks");
      return wrong.empty() && count() != before ? "descriptors were left open" : wrong;
    });
    CHECK(play_host([](std::vector<Member>&) {}, FileDescriptor(dup(SharedMemory::create().value().descriptor())),
                    times) == "");
    CHECK(guest.succeeds());
  }
}

TEST_CASE("a named process must be of this user and have the given start time") {
  const auto facts = facts_of(getpid());
  REQUIRE(facts.has_value());
  CHECK(facts->parent == getppid());
  CHECK(process_named(getpid(), facts->started).ok());
  CHECK(process_named(getpid(), facts->started + 1).error().code == ErrorCode::RankLost);
  CHECK_FALSE(process_named(0, 0).ok());
  CHECK_FALSE(process_named(-1, 0).ok());
  pid_t ended = 0;
  {
    Process process([] { return std::string(); });
    CHECK(process.succeeds());
  }
  ended = fork();
  if (ended == 0) _exit(0);
  waitpid(ended, nullptr, 0);
  CHECK(process_named(ended, 0).error().code == ErrorCode::RankLost);
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can be another user");
    return;
  }
  const pid_t foreign = fork();
  if (foreign == 0) {
    if (setresuid(kNobody, kNobody, kNobody) != 0) _exit(1);
    pause();
  }
  while (process_named(foreign, facts_of(foreign)->started).ok()) std::this_thread::sleep_for(1ms);
  const Result<PeerProcess> found = process_named(foreign, facts_of(foreign)->started);
  CHECK(found.error().code == ErrorCode::NotMet);
  CHECK(found.error().message.find("is of user 65534") != std::string::npos);
  kill(foreign, SIGKILL);
  waitpid(foreign, nullptr, 0);
}

TEST_CASE("a rank 0 that has no descriptor left for the welcome tells the others") {
  Process host([]() -> std::string {
    std::vector<FileDescriptor> all;
    Terms terms;
    terms.give = [&all](const std::vector<pid_t>&, const std::vector<std::uint64_t>&) -> Result<Given> {
      const rlimit few{40, 40};
      setrlimit(RLIMIT_NOFILE, &few);
      while (all.empty() || all.back().valid()) all.emplace_back(dup(0));
      return Given{1, -1, {0, 4096}};
    };
    const Result<Met> met = meet(meeting_of(0, 2), terms);
    if (met.ok()) return "met";
    const std::string told = met.error().str();
    return told.find("/proc/self/stat: Too many open files") != std::string::npos ? "" : told;
  });
  Process guest([] { return fails(meeting_of(1, 2), "rank 0 gave up while the others were joining: reading /proc"); });
  CHECK(guest.succeeds());
  CHECK(host.succeeds());
}

TEST_CASE("a rank that joins after rank 0 has given up gets the reason") {
  const Signal given_up;
  const Signal told;
  Process late([&] {
    given_up.await();
    return fails(meeting_of(1, 3), "has given up: of 3 ranks these have not joined within 0.5 s: 1, 2");
  });
  Process host([&] {
    const std::string wrong = fails(meeting_of(0, 3, 0.5), "have not joined within 0.5 s: 1, 2");
    given_up.give();
    told.await();  // its thread answers as long as the process lives
    return wrong;
  });
  CHECK(late.succeeds());
  told.give();
  CHECK(host.succeeds());
}

TEST_CASE("a job of one rank needs no job name") {
  const FileDescriptor held = listening(0);
  CHECK(meets(meeting_of(0, 1)).empty());
}

}  // namespace
}  // namespace gc3::core
