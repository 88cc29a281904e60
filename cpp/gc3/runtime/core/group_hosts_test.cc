// Groups of ranks on several hosts, here simulated by processes that meet through the loopback interface.
#include <doctest/doctest.h>
#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gc3/runtime/core/hosts/mirror_parts.h"
#include "gc3/runtime/core/meeting/test_meeting.h"
#include "gc3/runtime/core/test_hosts.h"

namespace gc3::core {
namespace {

using testing::blocks;
using testing::Hosting;
using testing::Process;
using testing::run_hosts;
using testing::start_rank;

std::string exchanges(Group& group) {
  const std::uint32_t rank = group.rank();
  if (Status status = group.begin({CallKind::barrier}); !status.ok()) return status.error().str();
  for (std::uint64_t i = 0; i < 20; ++i) {
    const auto all = group.exchange({rank, i, i * rank, 7}, {});
    if (!all.ok()) return all.error().str();
    for (std::uint32_t r = 0; r < group.size(); ++r) {
      if (all.value()[r] != Group::Payload{r, i, i * r, 7}) return "wrong words of rank " + std::to_string(r);
    }
  }
  const std::string own(rank * 11, static_cast<char>('a' + rank));
  const auto texts = group.exchange_bytes(own, {});
  if (!texts.ok()) return texts.error().str();
  for (std::uint32_t r = 0; r < group.size(); ++r) {
    if (texts.value()[r] != std::string(r * 11, static_cast<char>('a' + r))) return "wrong bytes";
  }
  const auto words = group.exchange_words({rank, 1, 2, 3, rank + 100U}, {});
  if (!words.ok()) return words.error().str();
  for (std::uint32_t r = 0; r < group.size(); ++r) {
    if (words.value()[5 * r] != r || words.value()[5 * r + 4] != r + 100) return "wrong many words";
  }
  group.finish();
  return "";
}

TEST_CASE("ranks of several hosts exchange words and bytes") {
  for (const auto& layout : {blocks(2, 2), blocks(3, 1), testing::Layout{{0, 3}, {1}, {2, 4}}}) {
    run_hosts(Hosting(layout), exchanges);
  }
}

TEST_CASE("a job of one host may have met as one of several does") {
  for (const auto& layout : {blocks(1, 1), blocks(1, 2)}) run_hosts(Hosting(layout), exchanges);
}

TEST_CASE("many hosts meet") { run_hosts(Hosting(blocks(16, 2)), exchanges); }

// Not part of the tests: run with `--no-skip --test-case="64 hosts*"`.
TEST_CASE("64 hosts of 4 ranks meet within 10 s" * doctest::skip()) {
  const auto start = std::chrono::steady_clock::now();
  run_hosts(Hosting(blocks(64, 4), 60), [&](Group& group) -> std::string {
    const auto since = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    const double met = since();
    std::string wrong = exchanges(group);
    if (group.rank() == 0) std::fprintf(stderr, "met after %.2f s, 40 exchanges in %.2f s\n", met, since() - met);
    if (wrong.empty() && met > 10) wrong = "met after " + std::to_string(met) + " s";
    return wrong;
  });
}

TEST_CASE("ranks wait for their leader as long as it waits for other hosts, whatever the time for a call is" *
          doctest::test_suite("waits")) {
  const Hosting hosting(blocks(2, 2));
  std::vector<pid_t> ranks;
  for (const std::uint32_t r : {0U, 1U, 2U, 3U}) {
    if (r == 2) std::this_thread::sleep_for(std::chrono::seconds(5));
    ranks.push_back(start_rank(hosting, r, exchanges, 3));
  }
  for (const pid_t rank : ranks) {
    int status = 0;
    waitpid(rank, &status, 0);
    CHECK(status == 0);
  }
}

TEST_CASE("a leader stays while a rank of its host needs it, also after another one has left and ended") {
  run_hosts(Hosting({{0}, {1, 2, 3}}), [](Group& group) -> std::string {
    if (group.rank() % 2 == 1) return "";
    auto pair = group.subgroup({0, 2}, "pair", {}, {});
    if (!pair.ok()) return pair.error().str();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    bool more = true;
    while (more) {
      if (std::string wrong = exchanges(*pair.value()); !wrong.empty()) return wrong;
      // Both have to make the same number of calls, so that one of them says when it is enough.
      if (Status status = pair.value()->begin({CallKind::barrier}); !status.ok()) return status.error().str();
      const auto said = pair.value()->exchange({std::chrono::steady_clock::now() < until ? 1U : 0U}, {});
      if (!said.ok()) return said.error().str();
      more = said.value()[0][0] == 1;
      pair.value()->finish();
    }
    return "";
  });
}

TEST_CASE("a group knows where its ranks are") {
  run_hosts(Hosting({{0, 3}, {1}, {2, 4}}), [](Group& group) -> std::string {
    const Group::Placement& where = group.placement();
    if (where.host_of != std::vector<std::uint32_t>{0, 1, 2, 0, 2}) return "hosts";
    if (where.ranks_of != testing::Layout{{0, 3}, {1}, {2, 4}} || where.ranks_per_node != 0) return "ranks";
    if (where.order == nullptr || *where.order != std::vector<std::uint32_t>{0, 3, 1, 2, 4}) return "order";
    if (where.hosts.size() != 3 || where.hosts[2].ranks != std::vector<std::uint32_t>{2, 4}) return "names";
    return "";
  });
  run_hosts(Hosting(blocks(2, 2)), [](Group& group) -> std::string {
    if (group.placement().ranks_per_node != 2 || group.placement().order != nullptr || group.ranks_here().size() != 2)
      return "blocks";
    return group.is_here(group.rank() ^ 1U) && !group.is_here(group.rank() ^ 2U) ? "" : "here";
  });
}

TEST_CASE("memory is shared by the ranks of each host") {
  run_hosts(Hosting(blocks(2, 2)), [](Group& group) -> std::string {
    if (Status status = group.begin({CallKind::barrier}); !status.ok()) return status.error().str();
    Result<Mapping> memory = group.allocate(4096, "a test", {});
    if (!memory.ok()) return memory.error().str();
    memory.value().data()[group.rank() % 2] = static_cast<std::uint8_t>(10 + group.rank());
    if (const auto all = group.exchange({}, {}); !all.ok()) return all.error().str();
    const std::uint8_t first = group.rank() < 2 ? 10 : 12;
    const bool right = memory.value().data()[0] == first && memory.value().data()[1] == first + 1;
    group.finish();
    return right ? "" : "another host's memory";
  });
}

TEST_CASE("groups of some ranks") {
  run_hosts(Hosting(blocks(2, 2)), [](Group& group) -> std::string {
    auto crossing = group.split(group.rank() % 2, 0, {});
    if (!crossing.ok()) return crossing.error().str();
    if (crossing.value()->size() != 2 || !crossing.value()->placement().several()) return "crossing";
    if (const std::string wrong = exchanges(*crossing.value()); !wrong.empty()) return wrong;
    auto near = group.split(group.placement().host_of[group.rank()], 0, {});
    if (!near.ok()) return near.error().str();
    if (near.value()->placement().several()) return "near";
    if (const std::string wrong = exchanges(*near.value()); !wrong.empty()) return wrong;
    if (group.rank() != 0) {  // neither all ranks nor the one that leads
      auto three = group.subgroup({3, 1, 2}, "three", {}, {});
      if (!three.ok()) return three.error().str();
      if (const std::string wrong = exchanges(*three.value()); !wrong.empty()) return wrong;
    }
    return exchanges(group);
  });
}

TEST_CASE("what a process at rank 0's port says without a proof ends nothing") {
  const Hosting hosting(blocks(2, 1));
  const int listener = hosting.meeting_of(0).route->listener->get();
  const pid_t visitor = start_rank(hosting, 1, exchanges);
  for (const int lie : {0, 1, 2}) {
    pollfd waiting{listener, POLLIN, 0};
    poll(&waiting, 1, -1);
    FileDescriptor socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (lie == 0) {
      const std::uint32_t words[] = {kVersion ^ 0x80U, 0};  // a frame of another version
      CHECK(send(socket.get(), words, sizeof words, MSG_NOSIGNAL) == sizeof words);
      continue;
    }
    Frames line(std::move(socket));
    Challenge challenge;
    challenge.nonce = Handshake::new_nonce().value();
    CHECK(line.put(bytes_of(challenge)));
    for (std::optional<std::string> opening; !opening; opening = line.next()) {
      pollfd coming{line.descriptor(), POLLIN, 0};
      poll(&coming, 1, -1);
      if (!line.fill(1 << 16)) break;
    }
    CHECK(line.put(lie == 1 ? bytes_of(Head{Kind::unproven}) : bytes_of(Answer())));
  }
  const pid_t host = start_rank(hosting, 0, exchanges);
  for (const pid_t rank : {visitor, host}) {
    int status = 0;
    waitpid(rank, &status, 0);
    CHECK(status == 0);
  }
}

TEST_CASE("ranks of other hosts that make another call are named") {
  run_hosts(Hosting(blocks(2, 2)), [](Group& group) -> std::string {
    CallRecord record;
    record.count = group.rank() == 3 ? 20 : 10;
    if (Status status = group.begin(record); !status.ok()) return status.error().str();
    while (!group.all_here()) std::this_thread::yield();  // before, the first one that looks names those that have come
    const auto all = group.exchange({}, {});
    if (all.ok()) return "no difference";
    const std::string said = all.error().str();
    const bool named = said.find("rank 3: allreduce of 20") != std::string::npos &&
                       said.find("rank 0, 1, 2: allreduce of 10") != std::string::npos;
    return named ? "" : said;
  });
}

TEST_CASE("what a rank of another host says of a call, or of a group, is told there, too") {
  run_hosts(Hosting(blocks(2, 2)), [](Group& group) -> std::string {
    const bool differs = group.rank() == 3;
    const auto tells = [&](const auto& made, const char* what) {
      if (made.ok()) return std::string("no difference");
      const std::string said = made.error().str();
      return said.find(what) != std::string::npos ? "" : said;
    };
    auto pair = group.subgroup({0, 3}, "pair", {}, {});
    if (group.rank() % 3 == 0 && !pair.ok()) return pair.error().str();
    if (pair.ok()) {
      const auto made = pair.value()->subgroup({0, 1}, "", {}, {}, true, differs ? "a.py:2" : "a.py:1");
      if (std::string wrong = tells(made, "rank 1: group of ranks 0, 1, made at a.py:2"); !wrong.empty()) return wrong;
    }
    if (differs && !group.note({CallKind::refused}, "no\nmask").ok()) return "not noted";
    if (Status status = group.begin({CallKind::barrier}); !status.ok()) {
      return tells(status, "rank 3: a call with wrong arguments: no\\nmask");
    }
    return tells(group.exchange({}, {}), "rank 3: a call with wrong arguments: no\\nmask");
  });
}

TEST_CASE("a lost rank, leader or rank 0 is named on all hosts" * doctest::test_suite("waits")) {
  std::vector<Process> worlds;  // at once, since they mostly wait
  for (const std::uint32_t victim : {3U, 2U, 0U}) {
    worlds.emplace_back([victim]() -> std::string {
      const auto survives = [&](std::uint32_t r) { return r != victim; };
      const auto body = [&](Group& group) -> std::string {
        auto start = std::chrono::steady_clock::now();
        // A leader that is killed may not have sent its last words.
        std::string said = exchanges(group);
        if (said.empty() && group.rank() == victim) kill(getpid(), SIGKILL);
        if (said.empty()) {
          start = std::chrono::steady_clock::now();
          said = exchanges(group);
        }
        const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        const bool named =
            said.find("rank " + std::to_string(victim)) != std::string::npos || said.find("host ") != std::string::npos;
        if (!named || said.find("GC3-R009") == std::string::npos) return said;
        return took < 8 ? "" : "after " + std::to_string(took) + " s";
      };
      const bool good = run_hosts(Hosting(blocks(2, 2)), body, survives);
      return good ? "" : "victim " + std::to_string(victim);
    });
  }
  for (Process& world : worlds) CHECK(world.succeeds());
}

TEST_CASE("stopped leaders are late, all hosts know them, and the job goes on with them") {
  int said[2];  // a rank that has called, and one that knows of the stopped one
  int goes[2];  // closed when the stopped one goes on
  REQUIRE(pipe(said) == 0);
  REQUIRE(pipe(goes) == 0);
  const Hosting hosting(blocks(3, 1));
  const auto body = [&](Group& group) -> std::string {
    std::string wrong = exchanges(group);
    if (!wrong.empty()) return wrong;
    const std::uint32_t rank = group.rank();
    if (write(said[1], &rank, sizeof rank) != sizeof rank) return "no pipe";
    // Stopped here, when all have called: its leader's thread has sent what they need.
    std::uint8_t nothing = 0;
    close(goes[1]);
    if (rank == 2 && read(goes[0], &nothing, 1) != 0) return "no pipe";
    while (rank != 2 && group.runs(2)) {
      if (Status status = group.check_wait(10, {}); !status.ok()) return status.error().str();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (rank != 2 && write(said[1], &rank, sizeof rank) != sizeof rank) return "no pipe";
    wrong = exchanges(group);
    return wrong.empty() || rank == 2 || group.runs(2) ? wrong : "still stopped";
  };
  std::vector<pid_t> ranks;
  for (std::uint32_t r = 0; r < hosting.size(); ++r) ranks.push_back(start_rank(hosting, r, body));
  close(said[1]);
  std::uint32_t rank = 0;
  for (int i = 0; i < 3; ++i) REQUIRE(read(said[0], &rank, sizeof rank) == sizeof rank);
  kill(ranks[2], SIGSTOP);
  for (int i = 0; i < 2; ++i) REQUIRE(read(said[0], &rank, sizeof rank) == sizeof rank);
  kill(ranks[2], SIGCONT);
  close(goes[1]);
  for (std::uint32_t r = 0; r < hosting.size(); ++r) {
    int status = 0;
    waitpid(ranks[r], &status, 0);
    CHECK_MESSAGE(status == 0, "rank ", r);
  }
  close(said[0]);
  close(goes[0]);
}

// Stands between the leaders of two hosts. After the first byte of `fails`, or after the second host has told that its
// rank has finished call `last`, that host hears nothing, and the first one hears its last sign of life again and
// again. `mutes`: instead, neither hears anything, and the system here soon takes nothing more for the first.
void carry(const FileDescriptor& listener, const Endpoint& rank_0, const FileDescriptor& fails,
           const FileDescriptor& ends, std::uint64_t last, bool mutes) {
  const auto call = [&] {
    FileDescriptor caller(socket(rank_0.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int least = 1;
    if (mutes) REQUIRE(setsockopt(caller.get(), SOL_SOCKET, SO_RCVBUF, &least, sizeof least) == 0);
    REQUIRE(connect(caller.get(), rank_0.get(), rank_0.length) == 0);
    return caller;
  };
  pollfd waiting{listener.get(), POLLIN, 0};
  poll(&waiting, 1, -1);
  Frames second(FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  Frames first(call());
  std::string beat;
  bool finished = false;
  bool failed = false;
  pollfd words[] = {{fails.get(), POLLIN, 0},
                    {ends.get(), POLLIN, 0},
                    {first.descriptor(), POLLIN, 0},
                    {second.descriptor(), POLLIN, 0}};
  while (words[1].revents == 0) {
    poll(words, std::size(words), 50);
    finished |= words[0].revents != 0;
    failed |= finished && !beat.empty();
    if (failed && mutes) words[2].fd = words[3].fd = -1;
    if (failed && mutes) continue;
    first.fill(1 << 20);
    while (const std::optional<std::string> message = first.next()) {
      if (!failed) second.put(*message);
    }
    if (second.valid() && !second.fill(1 << 20)) second.close();
    words[3].fd = second.descriptor();
    while (const std::optional<std::string> message = second.next()) {
      mirror::MessageHead head;
      if (message->size() >= sizeof head) message->copy(reinterpret_cast<char*>(&head), sizeof head);
      const bool is_beat = message->size() == sizeof head && head.what == mirror::What::beat;
      if (is_beat) beat = *message;
      if (is_beat || !failed) first.put(*message);
      mirror::Block block;
      if (message->size() < sizeof head + sizeof block || head.what != mirror::What::block) continue;
      message->copy(reinterpret_cast<char*>(&block), sizeof block, sizeof head);
      // What they say when they meet is no block.
      const bool is_block = block.finished <= block.begun && block.begun <= block.finished + 1;
      finished |= is_block && block.finished >= last;
    }
    failed |= finished && !beat.empty();
    if (failed) first.put(beat);
  }
}

// Runs two hosts of one rank. The first byte of the pipe that `body` gets, or what the second host tells of call
// `last`, begins the failure; see `carry`.
void run_apart(const std::function<std::string(Group& group, int fails)>& body, std::uint64_t last = ~std::uint64_t{0},
               bool mutes = false) {
  const Hosting hosting(blocks(2, 1));
  const FileDescriptor listener = listen_on(choose_interface("lo", {}).value(), 0).value();
  int fails[2];
  int ends[2];
  REQUIRE((pipe(fails) == 0 && pipe(ends) == 0));
  const FileDescriptor read_fails(fails[0]);
  const FileDescriptor write_fails(fails[1]);
  const FileDescriptor read_ends(ends[0]);
  std::optional<FileDescriptor> write_ends(ends[1]);
  const auto run = [&](Group& group) { return body(group, write_fails.get()); };
  const pid_t first = start_rank(hosting, 0, run);
  const pid_t second = start_rank(hosting, 1, run, 50, address_at(listener.get()));
  std::thread between([&] { carry(listener, hosting.address(), read_fails, read_ends, last, mutes); });
  int status = 0;
  waitpid(first, &status, 0);
  CHECK(status == 0);
  kill(second, SIGKILL);
  waitpid(second, nullptr, 0);
  write_ends.reset();
  between.join();
}

bool names_deaf_host(const std::string& said) {
  return said.find("GC3-R009") != std::string::npos &&
         said.find("has heard nothing of this host for") != std::string::npos;
}

TEST_CASE("a host that hears another one, and is not heard, gives up" * doctest::test_suite("waits")) {
  run_apart([](Group& group, int fails) -> std::string {
    std::string said = exchanges(group);
    if (!said.empty()) return said;
    if (group.rank() == 0 && write(fails, "f", 1) != 1) return "no pipe";
    said = exchanges(group);
    return group.rank() == 1 || names_deaf_host(said) ? "" : said;
  });
}

TEST_CASE("a host that is silent, and whose system takes nothing more, is lost" * doctest::test_suite("waits")) {
  const auto body = [](Group& group, int fails) -> std::string {
    const std::string said = exchanges(group);
    if (!said.empty()) return said;
    while (group.rank() == 1) pause();  // what it tells when it leaves would come first
    if (write(fails, "f", 1) != 1) return "no pipe";
    const std::string filling(200, 'f');
    const auto start = std::chrono::steady_clock::now();
    for (int looks = 0;; ++looks) {
      for (int i = 0; looks < 20 && i < 64; ++i) {  // more than its system keeps for a process that reads nothing
        if (Status status = group.note({.kind = CallKind::named}, filling); !status.ok()) break;
      }
      const double waited_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (const Status status = group.check_wait(waited_s, {}); !status.ok()) {
        const std::string why = status.error().str();
        return why.find("GC3-R009") != std::string::npos && why.find("not been heard of for 3.0 s") != std::string::npos
                   ? ""
                   : why;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  run_apart(body, ~std::uint64_t{0}, true);
}

TEST_CASE("what a rank has sent before it finished may be lost with its host" * doctest::test_suite("waits")) {
  const auto body = [](Group& group, int) -> std::string {
    if (Status status = group.begin({CallKind::barrier}); !status.ok()) return status.error().str();
    if (const auto all = group.exchange({}, {}); !all.ok()) return all.error().str();
    if (group.rank() == 1) {
      group.finish();
      exchanges(group);  // waits for rank 0
      return "";
    }
    const auto start = std::chrono::steady_clock::now();
    for (;;) {  // as if it waited for a message
      const double waited_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const Status status = group.check_wait(waited_s, {});
      if (!status.ok()) return names_deaf_host(status.error().str()) ? "" : status.error().str();
      std::this_thread::yield();
    }
  };
  run_apart(body, 2);  // the first call is made when the ranks meet
}

TEST_CASE("ranks of several hosts that make other groups, or call something else, learn at once what all do") {
  run_hosts(Hosting(blocks(3, 1)), [](Group& group) -> std::string {
    const std::uint32_t rank = group.rank();
    const std::vector<std::vector<std::uint32_t>> lists = {{0, 1}, {1, 2}, {0, 2}};
    const auto made = group.subgroup(lists[rank], "", {}, {}, true, "a.py:" + std::to_string(rank));
    const std::string said = made.ok() ? "" : made.error().str();
    const bool told = said.find("rank 0: group of ranks 0, 1, made at a.py:0, awaits rank 1") != std::string::npos &&
                      said.find("rank 1: group of ranks 1, 2, made at a.py:1, awaits rank 2") != std::string::npos &&
                      said.find("rank 2: group of ranks 0, 2, made at a.py:2, awaits rank 0") != std::string::npos;
    return told ? "" : "told: " + said;
  });
  run_hosts(Hosting(blocks(2, 1)), [](Group& group) -> std::string {
    std::string said;
    if (group.rank() == 0) {
      const auto made = group.subgroup({0, 1}, "", {}, {});
      said = made.ok() ? "" : made.error().str();
    } else {
      said = exchanges(group);
    }
    const bool told = said.find("rank 0: group of ranks 0, 1") != std::string::npos &&
                      said.find("rank 1: call 2 of the communicator, ") != std::string::npos;
    return told ? "" : "told: " + said;
  });
}

TEST_CASE("a host that has left is not lost to a rank that takes long for a call that its ranks have finished") {
  run_hosts(Hosting(blocks(3, 1)), [](Group& group) -> std::string {
    if (Status status = group.begin({CallKind::barrier}); !status.ok()) return status.error().str();
    if (const auto all = group.exchange({}, {}); !all.ok()) return all.error().str();
    const bool waits = group.rank() != 1;
    Job& job = *group.job();
    while (waits && job.board().why(job.hosts().of(1)).empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Status status = waits ? group.check_wait(10, {}) : Status();
    group.finish();
    return status.ok() ? "" : status.error().str();
  });
}

TEST_CASE("one rank that gives up ends the call of all") {
  run_hosts(Hosting(blocks(2, 2)), [](Group& group) -> std::string {
    if (Status status = group.begin({CallKind::barrier}); !status.ok()) return status.error().str();
    if (group.rank() == 3) {
      while (!group.all_here()) std::this_thread::yield();  // before, they would fail earlier
      group.abort();
      return group.check().ok() ? "still usable" : "";
    }
    const auto all = group.exchange({}, {});
    return !all.ok() && all.error().str().find("has aborted the communicator") != std::string::npos ? "" : "no reason";
  });
}

}  // namespace
}  // namespace gc3::core
