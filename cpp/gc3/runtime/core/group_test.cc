#include "gc3/runtime/core/group.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/test_groups.h"
#include "gc3/runtime/core/waiter.h"

namespace gc3::core {
namespace {

using testing::alone;
using testing::held;
using testing::kShort;
using testing::kTimeout;
using testing::run_ranks;

TEST_CASE("all ranks choose the same way to copy messages, even with different options") {
  // The options of rank 1; rank 0 allows everything, and measures, which counts for all.
  for (const bool allowed : {true, false}) {
    for (const bool probe : {true, false}) {
      Meeting meeting;
      meeting.size = 2;
      meeting.job = "group test of " + std::to_string(getpid());
      const pid_t other = fork();
      if (other == 0) meeting.rank = 1;
      const bool first = meeting.rank == 0;
      auto made = Group::world(meeting, {kTimeout, false, first || allowed, first || probe});
      bool good = made.ok();
      if (good) {
        good = !first || held() < 1'000'000;  // the memory of the measurement has been freed
        const SingleCopy& own = made.value()->single_copy();
        const bool measured = own.source == SingleCopy::Source::measured;
        good = good && made.value()->begin({CallKind::barrier}).ok();
        const auto all =
            made.value()->exchange({own.reads, own.thresholds.combined, own.thresholds.moved, own.times[4].read}, {});
        made.value()->finish();
        good = good && all.ok() && all.value()[0] == all.value()[1];
        // If the system forbids reading there is nothing to measure.
        good = good && (allowed || !own.reads) && measured == own.reads;
        good = good && (!measured || own.times[4].read != 0);
      }
      if (other == 0) _exit(good ? 0 : 1);
      CHECK(good);
      int status = 0;
      CHECK(waitpid(other, &status, 0) == other);
      CHECK(status == 0);
    }
  }
}

TEST_CASE("a rank that computes is no reason to give up a call, also just after it has ended") {
  for (const bool ended : {false, true}) {
    run_ranks(2, [=](Group& group) {
      if (!group.begin({CallKind::barrier}).ok()) return false;
      if (group.rank() == 1) group.computes(true);
      if (group.rank() == 1 && ended) group.computes(false);
      bool good = group.exchange({}, {}).ok();
      good = good && (group.rank() == 1 || group.check_wait(1e9, {}).ok());
      return good && group.exchange({}, {}).ok();
    });
  }
}

TEST_CASE("an exchange returns the payloads of this exchange, even if ranks are ahead") {
  run_ranks(3, [](Group& group) {
    bool good = group.begin({CallKind::barrier}).ok();
    for (std::uint64_t i = 0; i < 5000; ++i) {
      const auto all = group.exchange({i, group.rank(), i * group.rank()}, {});
      if (!all.ok()) return false;
      for (std::uint64_t r = 0; r < 3; ++r) good = good && all.value()[r] == Group::Payload{i, r, i * r};
    }
    group.finish();
    return good;
  });
}

TEST_CASE("ranks that wait in different ways meet") {
  for (const WaitMode mode : {WaitMode::spin, WaitMode::yield, WaitMode::block}) {
    // Ranks that spin have no wake-ups to lose, and on few cores wait for the system's turns.
    const std::uint64_t times = mode == WaitMode::spin ? 50 : 500;
    const auto body = [times](Group& group) {
      bool good = group.begin({CallKind::barrier}).ok();
      for (std::uint64_t i = 0; i < times && good; ++i) good = group.exchange({i}, {}).ok();
      group.finish();
      return good && group.wait_policy().describe().ends_with(", as told");
    };
    run_ranks(4, body, 4, kTimeout, mode);
  }
}

TEST_CASE("if ranks share a core though each could have one, one of them moves, and may still run on all cores") {
  const Cores all = Cores::own();
  if (all.count() < 2) return;
  const auto body = [&](Group& group) {
    all.share_of({all.count() - 1, all.count()}).keep_here();
    bool good = group.begin({CallKind::barrier}).ok() && group.exchange({}, {}).ok();
    good = good && !group.spread(std::chrono::steady_clock::now() + std::chrono::minutes(1));  // it must stay
    all.keep_here();
    const auto later = std::chrono::steady_clock::now() + std::chrono::hours(1);
    const bool moved = group.spread(later);
    good = good && moved == (group.rank() == 0) && !group.spread(later) && Cores::own() == all;
    group.finish();
    return group.exchange({}, {}).ok() && good;
  };
  run_ranks(2, body);
}

// Runs `body` beside a process that computes.
bool beside_load(const std::function<bool()>& body) {
  const pid_t busy = fork();
  if (busy == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) asm volatile("");
  }
  const bool passed = body();
  kill(busy, SIGKILL);
  waitpid(busy, nullptr, 0);
  return passed;
}

int long_yields() {
  int found = 0;
  for (int i = 0; i < 20; ++i) {
    const auto before = std::chrono::steady_clock::now();
    sched_yield();
    found += std::chrono::steady_clock::now() - before >= 2 * WaitPolicy::kLost;
  }
  return found;
}

TEST_CASE("small calls sleep beside a process that computes on the ranks' core") {
  const Cores all = Cores::own();
  all.share_of({0, all.count()}).keep_here();
  // A system with short turns never gives the core away for so long.
  const bool loses = beside_load([] { return long_yields() >= 5; });
  const auto body = [](Group& group) {
    bool seen = false;
    for (int i = 0; i < 5000; ++i) {
      seen = seen || group.wait_policy().describe().ends_with("so small calls sleep");
      const auto told = group.exchange({seen ? 1U : 0U}, {});
      if (!told.ok()) return false;
      if (std::ranges::all_of(told.value(), [](const Group::Payload& other) { return other[0] == 1; })) return true;
    }
    return false;
  };
  if (loses) run_ranks(2, [&](Group& group) { return beside_load([&] { return body(group); }); });
  all.keep_here();
}

TEST_CASE("waits that sleep at once find out that no other process takes turns with the rank any more") {
  const auto group = alone();
  WaitPolicy& policy = group->wait_policy();
  REQUIRE(policy.spins());
  policy.note_first_yield(std::chrono::microseconds(20));
  const Interrupted never;
  for (int i = 0; i < 10'000 && policy.takes_turns(); ++i) {
    CHECK_FALSE(policy.spins());
    policy.note_yield(2 * WaitPolicy::kLost);  // so the next wait sleeps at once
    Waiter waiter(*group, never);
    waiter.is_of_small_call();
    REQUIRE(waiter.rest([] { return 0U; }));
    waiter.renew();
  }
  CHECK(policy.spins());
}

TEST_CASE("the processor time of a group is that of all its processes") {
  const auto group = alone();
  const auto before = group->processor_time();
  const auto end = before + std::chrono::milliseconds(20);
  while (group->processor_time() < end) continue;
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto own = std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   std::chrono::microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  CHECK(own + std::chrono::milliseconds(10) >= end);
}

TEST_CASE("ranks of several sessions sleep in small calls on one half of the cores, and may run on all afterwards") {
  const Cores all = Cores::own();
  if (all.count() < 2) return;
  // So few that a few ranks have to share them.
  const Cores some = all.count() == 2 ? all : all.share_of({0, all.count() / 2});
  some.keep_here();
  const auto body = [&](Group& group) {
    // Waits that are long unless they sleep.
    for (int i = 0; i < 1000 && !group.wait_policy().blocks(); ++i) {
      const WaitPolicy::First first = group.wait_policy().first();
      group.wait_policy().note(first, std::chrono::microseconds(first == WaitPolicy::First::sleep ? 10 : 2000));
    }
    const bool gathers = group.wait_policy().gathers();  // if the system schedules sessions as groups
    bool good = gathers == group.wait_policy().blocks() && group.begin({CallKind::barrier}).ok();
    const std::optional<Cores> before = group.gather();
    const Cores half = Cores::own();
    good = good && before == some && half.count() < some.count();
    const auto halves = group.exchange({half.words[0], half.words[1]}, {});
    good = good && halves.ok() && halves.value()[0] == halves.value()[group.rank()];
    some.keep_here();
    // Everybody waits for rank 0, which sees where they sleep.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (Cores seen = some; group.rank() == 0 && gathers && seen != half && good; std::this_thread::yield()) {
      syscall(SYS_sched_getaffinity, group.process(1), sizeof seen.words, seen.words.data());
      good = std::chrono::steady_clock::now() < end;
    }
    good = good && group.exchange({}, {}).ok() && Cores::own() == some;
    group.finish();
    return group.exchange({}, {}).ok() && good;
  };
  run_ranks(4, body, 4, kTimeout, WaitMode::automatic, true);
  all.keep_here();
}

TEST_CASE("a rank that sleeps is told why the others have given up") {
  const auto body = [](Group& group) {
    if (group.rank() == 0) {
      group.abort();
      return true;
    }
    const Status begun = group.begin({CallKind::barrier});
    if (!begun.ok()) return begun.error().code == ErrorCode::Aborted;
    const auto met = group.exchange({}, {});
    return !met.ok() && met.error().code == ErrorCode::Aborted;
  };
  run_ranks(3, body, 3, kTimeout, WaitMode::block);
}

TEST_CASE("a split orders ranks by their keys, which may be negative; ranks with equal keys keep their order") {
  run_ranks(4, [](Group& group) {
    const std::uint32_t rank = group.rank();
    const std::int64_t keys[] = {5, -1, 0, -7};
    const auto turned = group.split(0, keys[rank], {});
    const std::uint32_t expected[] = {3, 1, 2, 0};
    const auto same = group.split(1, -3, {});
    const auto part = group.split(rank % 2 == 0 ? std::optional<std::uint32_t>(9) : std::nullopt, -1, {});
    if (!turned.ok() || !same.ok() || !part.ok()) return false;
    const bool in_part = rank % 2 == 0 ? part.value()->rank() == rank / 2 && part.value()->size() == 2 : !part.value();
    return turned.value()->rank() == expected[rank] && same.value()->rank() == rank && in_part;
  });
}

TEST_CASE("the memory of a split group is freed when all ranks have left it") {
  run_ranks(2, [](Group& group) {
    std::uint64_t before = 0;
    for (int i = 0; i < 60; ++i) {
      if (i == 10) before = held();
      if (!group.split(0, 0, {}).ok()) return false;
    }
    // The last group may still be in use by the other rank.
    return before > 0 && held() < before + 100'000;
  });
}

TEST_CASE("ranks take the parts of shared memory; if one gets none, all are told, and none is kept") {
  constexpr std::uint64_t kPart = std::uint64_t{1} << 20U;
  run_ranks(3, [](Group& group) {
    if (!group.begin({CallKind::barrier}).ok()) return false;
    const std::uint64_t before = held();
    // All ranks have read the number before any of them goes on.
    const auto meet = [&] { return group.exchange({}, {}).ok(); };
    if (!meet()) return false;
    const Result<Mapping> all = group.allocate({kPart, 0, 2 * kPart}, "a test", {});
    if (!all.ok() || all.value().size() != 3 * kPart || held() != before + 3 * kPart || !meet()) return false;
    // As if no memory were left for rank 2.
    const std::uint64_t last = group.rank() == 2 ? std::uint64_t{1} << 60U : kPart;
    const Result<Mapping> failed = group.allocate({kPart, kPart, last}, "a test", {});
    if (failed.ok() || failed.error().code != ErrorCode::OutOfMemory || !meet()) return false;
    return held() <= before + 3 * kPart + kPage && meet();  // a page to remember the free part by
  });
}

TEST_CASE("ranks whose calls differ report the first call that differs") {
  run_ranks(2, [](Group& group) {
    // Call 1 was that of joining.
    for (int call = 2; call < 8; ++call) {
      CallRecord record{CallKind::barrier};
      if (call >= 4) record = {CallKind::collective, model::CollectiveKind::broadcast};
      if (call == 4) record.root = group.rank();
      if (!group.begin(record).ok()) return false;
      group.finish();
    }
    if (!group.begin({CallKind::barrier}).ok()) return false;
    const auto result = group.exchange({}, {});
    if (result.ok() || result.error().code != ErrorCode::CallsDiffer) return false;
    const std::string told = result.error().str();
    return told.find("call 4 of the communicator") != std::string::npos &&
           told.find("rank 0: broadcast of 0 float32, root 0") != std::string::npos &&
           told.find("rank 1: broadcast of 0 float32, root 1") != std::string::npos;
  });
}

TEST_CASE("memory beyond the limit on the size of a file is refused by the name of that limit") {
  const pid_t limited = fork();
  if (limited == 0) {
    const rlimit most{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &most);
    const auto part = alone()->job()->allocate(2 << 20, "a test");
    bool named = !part.ok() && part.error().str().find("1048576 bytes (`ulimit -f` raises") != std::string::npos;
    for (const rlim_t bytes : {8192, 4096, 1024, 0}) {  // too few for a job
      const rlimit fewer{bytes, 1 << 20};
      setrlimit(RLIMIT_FSIZE, &fewer);
      Meeting meeting;
      meeting.job = "a limit on files " + std::to_string(getpid());
      const auto none = Group::world(meeting, {kTimeout, false, false});
      named = named && !none.ok() && none.error().code == ErrorCode::SystemRefused &&
              none.error().str().find(" bytes (`ulimit -f` raises") != std::string::npos;
    }
    _exit(named ? 0 : 1);
  }
  int status = 0;
  waitpid(limited, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("a stopped rank has the time of every other one, and the time-out says that it was stopped") {
  run_ranks(
      2,
      [](Group& group) {
        if (group.rank() == 1) return raise(SIGSTOP) == 0;
        if (!group.begin({CallKind::barrier}).ok()) return false;
        while (group.runs(1)) usleep(1000);
        Status status = group.check_wait(kTimeout - 0.1, {});
        if (!status.ok()) return false;
        status = group.check_wait(kTimeout + 0.1, {});
        return !status.ok() && status.error().code == ErrorCode::Timeout &&
               status.error().str().find("not called yet by rank 1 (process ") != std::string::npos &&
               status.error().str().find("), which has been stopped") != std::string::npos;
      },
      1);
}

TEST_CASE("a rank that was stopped within a wait does not count that time") {
  int looked[2];
  REQUIRE(pipe(looked) == 0);
  const pid_t waits = fork();
  if (waits == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Compares what the wait counts with what has passed between two looks.
    struct Look final : Waiter::Check {
      explicit Look(int tells) : to(tells) {}
      Status look(double waited_s) override {
        const auto now = std::chrono::steady_clock::now();
        const std::chrono::duration<double> passed = now - std::exchange(last, now);
        const double counted = waited_s - std::exchange(counted_s, waited_s);
        if (write(to, "l", 1) != 1) _exit(2);
        if (passed.count() > 0.65) _exit(counted < passed.count() - 0.3 ? 0 : 1);
        return {};
      }
      int to;
      std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
      double counted_s = 0;
    } look(looked[1]);
    const auto group = alone();
    const Interrupted never;
    Waiter waiter(*group, never, &look);
    while (waiter.rest()) continue;
    _exit(3);
  }
  char byte = 0;
  REQUIRE(read(looked[0], &byte, 1) == 1);
  kill(waits, SIGSTOP);
  int status = 0;
  waitpid(waits, &status, WUNTRACED);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  kill(waits, SIGCONT);
  if (!WIFEXITED(status)) waitpid(waits, &status, 0);
  CHECK(status == 0);
  close(looked[0]);
  close(looked[1]);
}

TEST_CASE("after a time-out, ranks that have not called and ranks that have not finished are listed separately") {
  int began[2];
  REQUIRE(pipe(began) == 0);
  run_ranks(
      3,
      [&](Group& group) {
        if (group.rank() == 2) return pause() == 0;
        if (!group.begin({CallKind::barrier}).ok()) return false;
        char byte = 0;
        if (group.rank() == 1) return write(began[1], &byte, 1) == 1 && pause() == 0;
        if (read(began[0], &byte, 1) != 1) return false;
        const Status status = group.check_wait(kTimeout + 1, {});
        if (status.ok() || status.error().code != ErrorCode::Timeout) return false;
        const auto& notes = status.error().notes;
        return notes.size() == 2 && notes[0].text.starts_with("not called yet by rank 2 (process ") &&
               notes[1].text.starts_with("not finished by rank 0 (process ") &&
               notes[1].text.find(", rank 1 (process ") != std::string::npos;
      },
      1);
  close(began[0]);
  close(began[1]);
}

TEST_CASE("a call is given up when it has made no progress for the time-out, and not before") {
  const auto group = alone();
  REQUIRE(group->begin({CallKind::barrier}).ok());
  CHECK(group->check_wait(0, {}).ok());
  CHECK(group->check_wait(kTimeout - 0.001, {}).ok());
  const Status late = group->check_wait(kTimeout + 0.001, {});
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().code == ErrorCode::Timeout);
  CHECK(late.error().message.find("has made no progress for 50 s") != std::string::npos);
  CHECK(group->check_wait(0, {}).error().code == ErrorCode::Timeout);  // and stays so
  CHECK_FALSE(group->begin({CallKind::barrier}).ok());
}

TEST_CASE("a call may have a time-out of its own, shorter or longer") {
  const auto group = alone();
  REQUIRE(group->begin({CallKind::barrier}).ok());
  group->limit_calls(2 * kTimeout);
  CHECK(group->check_wait(kTimeout + 0.001, {}).ok());
  group->limit_calls(0.25);
  CHECK(group->check_wait(0.249, {}).ok());
  const Status late = group->check_wait(0.251, {});
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().code == ErrorCode::Timeout);
  CHECK(late.error().message.find("has made no progress for 251 ms") != std::string::npos);
  for (const double wrong : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    CHECK_FALSE(check_timeout(wrong).ok());
  CHECK(check_timeout({}).ok());
}

TEST_CASE("an interrupted call is given up at once") {
  const auto group = alone();
  REQUIRE(group->begin({CallKind::barrier}).ok());
  CHECK(group->check_wait(0, [] { return false; }).ok());
  const Status ended = group->check_wait(0, [] { return true; });
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == ErrorCode::Aborted);
}

}  // namespace
}  // namespace gc3::core
