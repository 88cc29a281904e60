// Mistakes, time-outs, and ranks that end, stop or leave: what each side is told.
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "gc3/runtime/p2p/limits.h"
#include "gc3/runtime/p2p/test_pairs.h"

namespace gc3::p2p {
namespace {

using testing::begin;
using testing::Bytes;
using testing::content;
using testing::Process;
using testing::Rank;
using testing::run;
using testing::run_anywhere;

constexpr std::uint64_t kLong = std::uint64_t{3} << 20U;

std::string is(const Status& status, ErrorId code, const std::vector<std::string>& words) {
  GC3_EXPECT(!status.ok(), "it went well");
  const std::string said = status.error().str();
  GC3_EXPECT(status.error().code == code, said);
  for (const std::string& word : words) GC3_EXPECT(said.find(word) != std::string::npos, word + " not in " + said);
  return "";
}
template <class T>
Status status_of(const Result<T>& result) {
  return result.ok() ? Status() : Status(result.error());
}
std::string who(const Rank& me, std::uint32_t rank) { return me.group->who(rank); }

TEST_CASE("a message longer than the buffer is an error of the receive, and the next message comes") {
  for (const testing::World& world : {testing::World{2, true}, testing::World{2, false}, testing::apart(2, 1)}) {
    run(world, [](Rank& me) -> std::string {
      const Bytes data = content(kLong, 1);
      for (const std::uint64_t bytes : {std::uint64_t{9}, std::uint64_t{60'000}, kLong}) {
        for (const bool posted : {true, false}) {
          Bytes got(bytes - 1, 7);
          if (me.rank() == 0) {
            if (posted) GC3_EXPECT_OK(me.barrier());
            const Operation sends[] = {send_of(data.data(), bytes, 1, 4), send_of(nullptr, 0, 1, 5)};
            GC3_EXPECT_OK(me.messages->run(sends));
            continue;
          }
          if (!posted) GC3_EXPECT_OK(me.messages->receive(nullptr, 0, 0, 5));
          const auto started = me.messages->start(receive_of(got.data(), got.size(), kAnySource, kAnyTag));
          GC3_EXPECT_OK(started);
          if (posted) GC3_EXPECT_OK(me.barrier());
          const std::string wrong = is(me.messages->wait(*started.value()), ErrorCode::Truncated,
                                       {who(me, 0) + " has sent " + std::to_string(bytes) + " bytes with tag 4",
                                        who(me, 1) + " receives at most " + std::to_string(bytes - 1)});
          if (!wrong.empty()) return wrong;
          GC3_EXPECT(std::ranges::all_of(got, [](std::uint8_t b) { return b == 7; }), "written");
          if (posted) GC3_EXPECT_OK(me.messages->receive(nullptr, 0, 0, 5));
        }
      }
      return "";
    });
  }
}

TEST_CASE("a receive whose message does not fit ends while another thread looks at it") {
  for (const testing::World& world : {testing::World{2, true}, testing::World{2, false}, testing::apart(2, 1)}) {
    run(world, [](Rank& me) -> std::string {
      Bytes data(100'000);
      const int times = testing::kSanitized ? 200 : 1000;
      if (me.rank() == 0) {
        for (int i = 0; i < times; ++i) GC3_EXPECT_OK(me.messages->send(data.data(), data.size(), 1, 0));
        return testing::failed(me.messages->send(nullptr, 0, 1, 1));
      }
      Status other;
      std::thread looks([&] { other = status_of(me.messages->receive(nullptr, 0, 0, 1)); });
      std::string wrong;
      for (int i = 0; i < times; ++i) {
        wrong += is(status_of(me.messages->receive(data.data(), 8, 0, 0)), ErrorCode::Truncated, {});
      }
      looks.join();
      return wrong + testing::failed(other);
    });
  }
}

TEST_CASE("a rank that does not exist, a bad tag and a null pointer are refused") {
  run({2}, [](Rank& me) -> std::string {
    Messenger& m = *me.messages;
    std::uint8_t byte = 0;
    for (const std::string& wrong :
         {is(m.send(&byte, 1, 2, 0), ErrorCode::RankOutOfRange, {who(me, me.rank()), "sends to rank 2 of 2 ranks"}),
          is(status_of(m.receive(&byte, 1, 2, 0)), ErrorCode::RankOutOfRange, {"receives from rank 2 of 2 ranks"}),
          is(m.send(&byte, 1, kAnySource, 0), ErrorCode::RankOutOfRange, {}),
          is(m.send(&byte, 1, 0, kAnyTag), ErrorCode::BadArgument, {"tag -1"}),
          is(status_of(m.receive(&byte, 1, 0, -2)), ErrorCode::BadArgument, {"tag -2"}),
          is(m.send(nullptr, 1, 0, 0), ErrorCode::BadBuffer, {"null pointer"})}) {
      if (!wrong.empty()) return wrong;
    }
    return testing::failed(me.barrier());
  });
}

TEST_CASE("a call with a limit of its own ends alone, and its message is not received later") {
  run_anywhere(2, [](Rank& me) -> std::string {
    const Bytes data = content(kLong, 2);
    Bytes got(kLong);
    const WaitLimits brief{0.05, {}};
    if (me.rank() == 0) {
      std::string wrong = is(status_of(me.messages->receive(got.data(), kLong, 1, 0, brief)), ErrorCode::Timeout,
                             {who(me, 0) + " has waited", "for a message with tag 0 from " + who(me, 1)});
      if (!wrong.empty()) return wrong;
      wrong = is(me.messages->send(got.data(), kLong, 1, 0, brief), ErrorCode::Timeout,
                 {"to send " + std::to_string(kLong) + " bytes with tag 0 to " + who(me, 1)});
      if (!wrong.empty()) return wrong;
      GC3_EXPECT_OK(me.barrier());
      return testing::failed(me.messages->send(data.data(), kLong, 1, 0));
    }
    GC3_EXPECT_OK(me.barrier());
    GC3_EXPECT_OK(me.messages->receive(got.data(), kLong, kAnySource, kAnyTag));
    GC3_EXPECT(got == data, "the withdrawn message");
    return "";
  });
}

TEST_CASE("withdrawn offers do not pile up, nor use up the slots") {
  run({2}, [](Rank& me) -> std::string {
    std::uint64_t value = 0;
    constexpr std::uint64_t kRounds = 4;
    if (me.rank() == 0) {
      const Bytes data(kLong);
      const std::vector<Operation> sends(kSlots - 1, send_of(data.data(), kLong, 1, 2));
      for (std::uint64_t i = 0; i < kRounds; ++i) {
        const std::string wrong = is(status_of(me.messages->run(sends, {1e-9, {}})), ErrorCode::Timeout, {});
        if (!wrong.empty()) return wrong;
        GC3_EXPECT_OK(me.messages->send(data.data(), kLong, 1, 1));
      }
      return testing::failed(me.messages->send(&value, sizeof value, 1, 2));
    }
    Bytes got(kLong);
    for (std::uint64_t i = 0; i < kRounds; ++i) GC3_EXPECT_OK(me.messages->receive(got.data(), kLong, 0, 1));
    return testing::failed(status_of(me.messages->receive(&value, sizeof value, 0, 2)));
  });
}

// Seconds in which all ranks have begun a call after a barrier, also under a sanitizer on a crowded machine.
constexpr double kMuchLater = 3;

TEST_CASE("two sends that wait for each other are named on both sides" * doctest::test_suite("waits")) {
  run({2, true, kMuchLater}, [](Rank& me) -> std::string {
    const Bytes data(kLong);
    GC3_EXPECT_OK(me.barrier());
    const Status status = me.messages->send(data.data(), kLong, 1 - me.rank(), 3);
    const std::string long_one = " to send " + std::to_string(kLong) + " bytes with tag 3 to ";
    return is(status, ErrorCode::Timeout,
              {who(me, 0), who(me, 1), long_one, "each waits for the other to receive", "sendrecv"});
  });
}

TEST_CASE("a circle of sends that wait for each other is named" * doctest::test_suite("waits")) {
  run({3, true, kMuchLater}, [](Rank& me) -> std::string {
    const Bytes data(kLong);
    GC3_EXPECT_OK(me.barrier());
    const Status status = me.messages->send(data.data(), kLong, (me.rank() + 1) % 3, 3);
    const std::string wrong = is(status, ErrorCode::Timeout, {"wait for each other in a circle: ", "sendrecv"});
    if (!wrong.empty()) return wrong;
    const std::string said = status.error().str();  // by the rank that was first
    const auto names = [&](const char* circle) { return said.find(circle) != std::string::npos; };
    GC3_EXPECT(names(": 0, 1, 2;") || names(": 1, 2, 0;") || names(": 2, 0, 1;"), said);
    return "";
  });
}

// Random messages among all ranks until one of them fails.
Status exchange_until_failure(Rank& me, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::uint64_t round = 0;; ++round) {
    const std::uint64_t bytes = random() % (std::uint64_t{1} << random() % 20);  // the same on all ranks
    const auto shift = static_cast<std::uint32_t>(1 + random() % (me.size() - 1));
    const bool any = random() % 4 == 0;
    const Bytes data(bytes, 1);
    Bytes got(bytes);
    const std::uint32_t to = (me.rank() + shift) % me.size();
    const std::uint32_t from = (me.rank() + me.size() - shift) % me.size();
    const auto tag = static_cast<std::int32_t>(round % 1000);
    const Operation both[] = {receive_of(got.data(), bytes, any ? kAnySource : from, tag),
                              send_of(data.data(), bytes, to, tag)};
    GC3_CHECK(me.messages->run(both));
  }
}

TEST_CASE("a rank killed at any moment is named on all others") {
  std::mt19937 random(7);
  for (int world = 0; world < 60; ++world) {
    const auto n = static_cast<std::uint32_t>(2 + random() % 3);
    const auto victim = static_cast<std::uint32_t>(random() % n);
    const auto after = std::chrono::microseconds(random() % 8000);
    const bool reads = world % 2 == 0;
    const testing::World how{n, reads, 30, world % 4 < 2 ? testing::kAtOnce : Thresholds::kNever};
    std::vector<Process> ranks = begin(how, [&](Rank& me) -> std::string {
      if (me.rank() == victim) {
        std::thread([after] {
          std::this_thread::sleep_for(after);
          kill(getpid(), SIGKILL);
        }).detach();
      }
      return is(exchange_until_failure(me, static_cast<std::uint64_t>(world)), ErrorCode::RankLost,
                {who(me, victim) + " has ended"});
    });
    for (std::uint32_t r = 0; r < n; ++r) {
      if (r != victim) CHECK_MESSAGE(ranks[r].succeeds(), "world ", world, " rank ", r);
    }
  }
}

TEST_CASE("a stopped rank and one that has closed are named" * doctest::test_suite("waits")) {
  std::vector<Process> ranks = begin({2}, [](Rank& me) -> std::string {
    if (me.rank() == 1) raise(SIGSTOP);
    while (me.group->runs(1)) std::this_thread::yield();
    std::uint8_t byte = 0;
    return is(status_of(me.messages->receive(&byte, 1, 1, 0, {0.1})), ErrorCode::Timeout,
              {who(me, 0) + " has waited", "for a message with tag 0", who(me, 1) + " has been stopped"});
  });
  CHECK(ranks[0].succeeds());
  run({2}, [](Rank& me) -> std::string {
    if (me.rank() == 1) {
      me.messages.reset();
      me.group.reset();
      return "";
    }
    const Bytes data(kLong);
    return is(me.messages->send(data.data(), kLong, 1, 0), ErrorCode::RankLost,
              {who(me, 1) + " has closed the communicator"});
  });
}

TEST_CASE("what a rank has sent is received after its end; from any rank, somebody has to be left") {
  run({3}, [](Rank& me) -> std::string {
    const std::uint32_t value = me.rank();
    if (me.rank() != 0) {
      GC3_EXPECT_OK(me.messages->send(&value, sizeof value, 0, 0));
      me.messages.reset();
      me.group.reset();
      return "";
    }
    std::uint32_t got = 0;
    // Both have closed before the first receive, as far as waiting can bring that about.
    while (me.group->presence(1) == core::Group::Presence::here) std::this_thread::yield();
    while (me.group->presence(2) == core::Group::Presence::here) std::this_thread::yield();
    GC3_EXPECT_OK(me.messages->receive(&got, sizeof got, 2, 0));
    GC3_EXPECT(got == 2, std::to_string(got));
    GC3_EXPECT_OK(me.messages->receive(&got, sizeof got, kAnySource, 0));
    return is(status_of(me.messages->receive(&got, sizeof got, kAnySource, 0)), ErrorCode::RankLost,
              {"all other ranks have closed the communicator", who(me, 0) + " waits for a message"});
  });
}

TEST_CASE("what a rank of another host has sent before it closed is received, and waits for whoever is late") {
  run(testing::apart(3, 1), [](Rank& me) -> std::string {
    const std::uint32_t value = me.rank();
    if (me.rank() != 0) {
      GC3_EXPECT_OK(me.messages->send(&value, sizeof value, 0, 0));
      me.messages.reset();
      me.group.reset();
      return "";
    }
    std::uint32_t got = 0;
    GC3_EXPECT_OK(me.messages->receive(&got, sizeof got, 2, 0));
    GC3_EXPECT(got == 2, std::to_string(got));
    GC3_EXPECT_OK(me.messages->receive(&got, sizeof got, kAnySource, 0));
    GC3_EXPECT(got == 1, std::to_string(got));
    return is(status_of(me.messages->receive(&got, sizeof got, kAnySource, 0)), ErrorCode::RankLost,
              {"all other ranks have closed the communicator", who(me, 0) + " waits for a message"});
  });
}

TEST_CASE("a rank of another host that is killed, closes, or cannot be reached is named" *
          doctest::test_suite("waits")) {
  std::vector<Process> ranks = begin(testing::apart(2, 1), [](Rank& me) -> std::string {
    std::uint8_t byte = 0;
    if (me.rank() == 1) {
      GC3_EXPECT_OK(me.messages->send(&byte, 1, 0, 0));
      raise(SIGKILL);
    }
    Bytes got(kLong);
    return is(status_of(me.messages->receive(got.data(), kLong, 1, 1)), ErrorCode::RankLost,
              {who(me, 1) + " has ended"});
  });
  CHECK(ranks[0].succeeds());
  run(testing::apart(2, 1), [](Rank& me) -> std::string {
    if (me.rank() == 1) {
      me.messages.reset();
      me.group.reset();
      return "";
    }
    const Bytes data(kLong);
    return is(me.messages->send(data.data(), kLong, 1, 0), ErrorCode::RankLost,
              {who(me, 1) + " has closed the communicator"});
  });
  transport::Fake::Options loses;
  loses.loses_after = 3;
  run(testing::apart(2, 1, loses), [](Rank& me) -> std::string {
    const Bytes data(kLong);
    if (me.rank() == 0) {
      return is(me.messages->send(data.data(), kLong, 1, 0), ErrorCode::RankLost, {"cannot be reached any more"});
    }
    Bytes got(kLong);
    return is(status_of(me.messages->receive(got.data(), kLong, 0, 0)), ErrorCode::RankLost,
              {who(me, 1) + " cannot be reached any more: the test has lost it"});
  });
}

TEST_CASE("a rank of another host whose port cannot be reached is named, with the reason, on both sides" *
          doctest::test_suite("waits")) {
  transport::Fake::Options nowhere;
  nowhere.address = "127.0.0.1:1";  // where nobody listens
  run(testing::apart(2, 1, nowhere), [](Rank& me) -> std::string {
    Bytes data(kLong);
    const WaitLimits brief{0.5, {}};
    const std::string wrong =
        me.rank() == 0 ? is(me.messages->send(data.data(), kLong, 1, 0, brief), ErrorCode::Timeout,
                            {who(me, 0) + " cannot connect to " + who(me, 1) + " at 127.0.0.1:1: Connection refused"})
                       : is(status_of(me.messages->receive(data.data(), kLong, 0, 0, brief)), ErrorCode::Timeout,
                            {who(me, 0) + " has not connected to " + who(me, 1) + " (fake, over tcp, 127.0.0.1:"});
    return wrong + testing::failed(me.barrier());
  });
}

TEST_CASE("every field of a record from another host is checked") {
  struct Wrong {
    RecordKind kind;
    MessageHead head;
    std::uint64_t bytes;  // after the head
    std::string said;
  };
  const std::string cut = "parts of messages that do not fit together";
  const Wrong all[] = {
      {static_cast<RecordKind>(77), {}, 0, "something else than messages"},
      {RecordKind::first, {0, 0, kMostEager + 1, 0}, 8, cut},
      {RecordKind::first, {0, 0, 7, 0}, 8, cut},
      {RecordKind::more, {}, 8, cut},
      {RecordKind::offer, {0, 3, 100, 1}, 0, "an offer of memory that other hosts cannot read"},
      {RecordKind::taken, {0, 0, 1, 0}, 0, "that it has taken more than was sent"},
  };
  const testing::World world = testing::apart(2, 1);
  for (const Wrong& wrong : all) {
    CAPTURE(wrong.said);
    std::vector<Process> ranks;
    ranks.emplace_back([&]() -> std::string {
      Rank me(0, 2, true, 30, testing::kAtOnce, world.hosts);
      std::uint8_t byte = 0;
      return is(status_of(me.messages->receive(&byte, 1, 1, 0)), ErrorCode::RankLost,
                {who(me, 1) + " cannot be reached any more: it has sent " + wrong.said});
    });
    ranks.emplace_back([&]() -> std::string {
      const auto group = Rank::world(1, 2);
      auto pipes = HostPipes::create(*group, world.hosts, {}).value();
      PipeSender out = pipes->open(0).value();
      const Bytes data(wrong.bytes);
      out.put(wrong.kind, wrong.head, data.data(), wrong.bytes);
      while (group->presence(0) == core::Group::Presence::here) {
        pipes->push(0);
        pipes->progress();
      }
      return "";
    });
    CHECK(ranks[0].succeeds());
    CHECK(ranks[1].succeeds());
  }
}

TEST_CASE("a lost rank is noticed by who only tests, and by a function to be called") {
  run({2}, [](Rank& me) -> std::string {
    if (me.rank() == 1) _exit(0);
    std::uint8_t byte = 0;
    std::atomic<bool> called = false;
    const auto told =
        me.messages->start(receive_of(&byte, 1, 1, 0), [&](const Request& r) { called = !r.status().ok(); });
    const auto tested = me.messages->start(receive_of(&byte, 1, 1, 1));
    GC3_EXPECT_OK(tested);
    while (!me.messages->test(*tested.value())) std::this_thread::yield();
    while (!called) std::this_thread::yield();
    return is(tested.value()->status(), ErrorCode::RankLost, {who(me, 1) + " has ended"});
  });
}

TEST_CASE("abort and an interrupt end the waits of all ranks") {
  for (const bool aborts : {true, false}) {
    run({2}, [aborts](Rank& me) -> std::string {
      std::uint8_t byte = 0;
      if (me.rank() == 1 && aborts) me.group->abort();
      const WaitLimits limits{{}, [&] { return me.rank() == 1; }};
      return is(status_of(me.messages->receive(&byte, 1, 1 - me.rank(), 0, limits)), ErrorCode::Aborted,
                {who(me, 1) + (aborts ? " has aborted" : " was interrupted")});
    });
  }
}

TEST_CASE("close ends the receives of other threads, and lets what was sent leave") {
  run_anywhere(2, [](Rank& me) -> std::string {
    const Bytes data = content(kLong, 9);
    if (me.rank() == 1) {
      Bytes got(kLong);
      GC3_EXPECT_OK(me.messages->receive(got.data(), kLong, 0, 0));
      GC3_EXPECT(got == data, "wrong data");
      return "";
    }
    std::uint8_t byte = 0;
    Status waited;
    std::thread waits([&] { waited = status_of(me.messages->receive(&byte, 1, 1, 0)); });
    const auto receive = me.messages->start(receive_of(&byte, 1, 1, 1));
    const auto send = me.messages->start(send_of(data.data(), kLong, 1, 0));
    GC3_EXPECT_OK(send);
    GC3_EXPECT_OK(receive);
    me.messages->close();
    waits.join();
    GC3_EXPECT_OK(send.value()->status());
    for (const Status& status : {waited, receive.value()->status(), me.messages->send(&byte, 1, 1, 0)}) {
      const std::string wrong = is(status, ErrorCode::CommunicatorClosed, {});
      if (!wrong.empty()) return wrong;
    }
    return "";
  });
}

TEST_CASE("a fork must not send") {
  run({1}, [](Rank& me) -> std::string {
    Process child([&]() -> std::string {
      const std::string wrong = is(me.messages->send(nullptr, 0, 0, 0), ErrorCode::UsedAfterFork, {});
      if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
      _exit(wrong.empty() ? 0 : 1);
    });
    return child.succeeds() ? "" : "the child";
  });
}

std::uint64_t resident_pages() {
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident;
}

// AddressSanitizer keeps freed memory for a while, up to 256 MiB, to find uses of it. ThreadSanitizer keeps something
// of each word that was written atomically, and of what its threads did last. Without them the test is exact.
constexpr std::uint64_t kPagesOfTools = testing::kSanitized ? 1U << 16U : 0;

TEST_CASE("100,000 messages leave nothing behind") {
  run({2}, [](Rank& me) -> std::string {
    const std::uint32_t other = 1 - me.rank();
    Bytes data(50'000);
    Bytes got(50'000);
    std::uint64_t before = 0;
    for (std::uint64_t i = 0; i < 50'000; ++i) {
      if (i == 25'000) before = resident_pages();
      const std::uint64_t bytes = i % 50 == 0 ? 50'000 : i % 100;
      const auto tag = static_cast<std::int32_t>(i);  // each tag once
      const auto started = me.messages->start(receive_of(got.data(), bytes, i % 2 == 0 ? other : kAnySource, tag));
      GC3_EXPECT_OK(started);
      GC3_EXPECT_OK(me.messages->send(data.data(), bytes, other, tag));
      GC3_EXPECT_OK(me.messages->wait(*started.value()));
    }
    const std::uint64_t after = resident_pages();
    GC3_EXPECT(after < before + 64 + kPagesOfTools,
               std::to_string(before) + " pages before, " + std::to_string(after) + " after");
    return "";
  });
}

}  // namespace
}  // namespace gc3::p2p
