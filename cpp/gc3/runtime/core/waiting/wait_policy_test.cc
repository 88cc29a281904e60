#include "gc3/runtime/core/waiting/wait_policy.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/waiting/test_process.h"

namespace gc3::core {
namespace {

using First = WaitPolicy::First;
using std::chrono::microseconds;

TEST_CASE("a limit does not count the time in which the process was stopped, but for a short part") {
  using std::chrono::milliseconds;
  const WaitClock::Clock::time_point start{std::chrono::hours(1)};
  WaitClock clock(start);
  CHECK(clock.waited(start + milliseconds(200)) == milliseconds(200));
  CHECK(clock.waited(start + milliseconds(400)) == milliseconds(400));
  CHECK(clock.waited(start + milliseconds(60'400)) == milliseconds(400) + WaitClock::kLongestGap);
  CHECK(clock.waited(start + milliseconds(60'500)) == milliseconds(500) + WaitClock::kLongestGap);
}

TEST_CASE("a wait with a limit does not count the time in which its process was stopped" *
          doctest::test_suite("waits")) {
  CHECK(testing::leaves_out_stops([] {
    std::promise<Status> never;
    const Status late = wait_for(never.get_future().share(), 1.0, {});
    return !late.ok() && late.error().code == ErrorCode::Timeout;
  }));
}

// A machine on which waits have these durations, by the way in which they begin. A trial ends after a limit.
struct Machine {
  microseconds yielding;
  microseconds sleeping;

  // The number of waits that began in each way.
  struct Begun {
    int yields = 0;
    int trials = 0;
    int sleeps = 0;
  };
  Begun wait(WaitPolicy& policy, int waits) const {
    Begun begun;
    for (int i = 0; i < waits; ++i) {
      const First first = policy.first();
      ++(first == First::yield ? begun.yields : first == First::trial ? begun.trials : begun.sleeps);
      policy.note(first, first == First::sleep ? sleeping : yielding);
    }
    return begun;
  }
};

constexpr Machine kQuiet{microseconds(3), microseconds(30)};
constexpr Machine kBusy{microseconds(1500), microseconds(60)};

TEST_CASE("on a quiet machine every wait yields") {
  WaitPolicy policy(WaitMode::automatic, false, true);
  CHECK(kQuiet.wait(policy, 100'000).yields == 100'000);
  CHECK(policy.describe() ==
        "yields the core at once: more ranks than cores, in sessions that the system schedules as groups");
}

TEST_CASE("within one session every wait yields, also with other load") {
  WaitPolicy policy(WaitMode::automatic, false, false);
  CHECK(kBusy.wait(policy, 100'000).yields == 100'000);
  CHECK(policy.describe() == "yields the core at once: more ranks than cores");
}

TEST_CASE("with other load, waits soon sleep at once and trials become rare; without it, waits yield again") {
  WaitPolicy policy(WaitMode::automatic, false, true);
  CHECK(kBusy.wait(policy, 40).yields == 34);  // 50 ms
  kBusy.wait(policy, 300);
  CHECK(policy.blocks());
  CHECK(
      policy.describe() ==
      "sleeps at once: more ranks than cores, in sessions that the system schedules as groups, and waits took 1500 us "
      "yielding and 60 us sleeping");
  const Machine::Begun begun = kBusy.wait(policy, 100'000);
  CHECK(begun.yields == 0);
  CHECK(begun.trials > 5);
  CHECK(begun.trials < 50);
  kQuiet.wait(policy, 5000);
  CHECK_FALSE(policy.blocks());
  CHECK(kQuiet.wait(policy, 1000).yields == 1000);
}

TEST_CASE("long waits that sleeping does not shorten continue to yield, and comparisons become rare") {
  WaitPolicy policy(WaitMode::automatic, true, true);
  const Machine slow{microseconds(500), microseconds(450)};
  const Machine::Begun begun = slow.wait(policy, 100'000);
  CHECK_FALSE(policy.blocks());
  CHECK(begun.sleeps > 0);
  CHECK(begun.sleeps < 10'000);
}

TEST_CASE("a few long interruptions by other load change nothing") {
  WaitPolicy policy(WaitMode::automatic, true, true);
  for (int i = 0; i < 1000; ++i) {
    kQuiet.wait(policy, 9);
    policy.note(policy.first(), microseconds(10'000));
  }
  CHECK_FALSE(policy.blocks());
}

// Waits of small calls one after the other, on a machine where a yield may lose the core; returns how many slept.
int small_waits(WaitPolicy& policy, int waits, bool loses) {
  int sleeps = 0;
  for (int i = 0; i < waits; ++i) {
    const First first = policy.first();
    sleeps += first == First::sleep ? 1 : 0;
    policy.note_small(first, microseconds(first == First::sleep ? 60 : loses ? 2800 : 3));
  }
  return sleeps;
}

TEST_CASE(
    "small calls of ranks that share cores soon sleep beside other load, and seldom find out whether it is gone") {
  WaitPolicy policy(WaitMode::automatic, false, true);
  CHECK(small_waits(policy, 100'000, false) == 0);
  CHECK(small_waits(policy, 108, true) == 100);  // after eight
  CHECK(policy.blocks());
  CHECK(policy.describe().ends_with(", and waits took 2800 us yielding"));
  // After 1,024 sleeps, 4,096 and so on one wait yields, up to 65,536.
  CHECK(small_waits(policy, 87'384, true) == 87'384 - 4);
  CHECK(small_waits(policy, 1'000'000, true) == 1'000'000 - 15);
  // What has not come back in some thousand waits is gone. Then a lost one changes nothing.
  small_waits(policy, 65'536, false);
  CHECK(small_waits(policy, 10'000, false) == 0);
  CHECK_FALSE(policy.blocks());
  CHECK(small_waits(policy, 7, true) == 0);
  CHECK(small_waits(policy, 1024, false) == 0);
  CHECK(small_waits(policy, 7, true) == 0);
}

TEST_CASE("a given mode is kept") {
  for (const auto& [text, blocks] : {std::pair{"spin", false}, {"yield", false}, {"block", true}}) {
    const Result<WaitMode> mode = parse_wait_mode(text);
    REQUIRE(mode.ok());
    WaitPolicy policy(mode.value(), false, false);
    CHECK(kBusy.wait(policy, 1000).sleeps == (blocks ? 1000 : 0));
    CHECK(policy.describe().ends_with(", as told"));
  }
  CHECK(parse_wait_mode("auto").value() == WaitMode::automatic);
  for (const char* text : {"", "Spin", "wait"}) {
    const Result<WaitMode> mode = parse_wait_mode(text);
    REQUIRE_FALSE(mode.ok());
    CHECK(mode.error().code == ErrorCode::BadOption);
  }
}

// How many of so many waits for messages sleep at once where each yield takes so long.
int sleeping(WaitPolicy& policy, int waits, microseconds yield) {
  int slept = 0;
  for (int i = 0; i < waits; ++i) {
    if (policy.has_lost_core()) {
      ++slept;
    } else if (!policy.note_yield(yield)) {
      policy.note_kept_core();
    }
  }
  return slept;
}

TEST_CASE("waits of small calls look at yields within one session, and after a long one find out who has the core") {
  CHECK(WaitPolicy(WaitMode::automatic, false, false).looks_at_yields());
  CHECK_FALSE(WaitPolicy(WaitMode::automatic, false, true).looks_at_yields());
  CHECK_FALSE(WaitPolicy(WaitMode::yield, false, false).looks_at_yields());
  CHECK_FALSE(WaitPolicy(WaitMode::block, false, false).looks_at_yields());
  WaitPolicy policy(WaitMode::automatic, false, false);
  CHECK_FALSE(policy.is_in_doubt());
  policy.doubt();
  int doubts = 0;
  while (policy.is_in_doubt()) ++doubts;
  CHECK(doubts == 8);
}

TEST_CASE("waits for messages sleep while a yield gives the core away for long, and trials become rare") {
  WaitPolicy policy(WaitMode::automatic, true, false);
  CHECK(sleeping(policy, 1000, microseconds(10)) == 0);
  // Trials after 16, 32, ... waits.
  CHECK(sleeping(policy, 1000, microseconds(4000)) == 1000 - 6);
  CHECK(sleeping(policy, 100'000, microseconds(4000)) > 99'900);
  // The sleeping that has begun ends, and then all yield.
  sleeping(policy, 5000, microseconds(10));
  CHECK(sleeping(policy, 1000, microseconds(10)) == 0);
  CHECK(sleeping(policy, 17, microseconds(4000)) == 16);
  CHECK(!policy.note_yield(microseconds(999)));
  CHECK(policy.note_yield(microseconds(1000)));
  CHECK(policy.is_in_doubt());
  CHECK(policy.describe() ==
        "spins, then yields the core: a core for each rank; other load has the cores, so small calls sleep");
}

TEST_CASE("waits do not spin while another process takes turns with the rank") {
  WaitPolicy policy(WaitMode::automatic, true, false);
  policy.note_first_yield(std::chrono::nanoseconds(500));  // nobody else needs the core
  CHECK(!policy.takes_turns());
  policy.note_first_yield(microseconds(4000));  // a process that computes: spinning keeps the core
  CHECK(!policy.takes_turns());
  CHECK(policy.describe().starts_with("spins"));
  policy.note_first_yield(microseconds(20));
  CHECK(policy.takes_turns());
  CHECK(policy.describe().starts_with("yields the core at once: a core for each rank, but other processes"));
  for (std::uint32_t i = 1; i < WaitPolicy::kTurns; ++i) policy.note_first_yield(std::chrono::nanoseconds(500));
  CHECK(policy.takes_turns());
  policy.note_first_yield(std::chrono::nanoseconds(500));
  CHECK(!policy.takes_turns());
  policy.note_first_yield(microseconds(20));
  policy.note_first_yield(microseconds(4000));
  CHECK(!policy.takes_turns());
  WaitPolicy told(WaitMode::yield, true, false);
  told.note_first_yield(microseconds(20));
  CHECK(!told.takes_turns());
}

TEST_CASE("waits for messages yield as told") {
  WaitPolicy policy(WaitMode::yield, true, false);
  CHECK(sleeping(policy, 1000, microseconds(4000)) == 0);
}

}  // namespace
}  // namespace gc3::core
