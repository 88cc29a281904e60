// The choice among programs whose times are made up.
#include "gc3/runtime/select/learner.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "gc3/base/mix64.h"

namespace gc3::select {
namespace {

constexpr std::uint32_t kAll = 0xffff;

// Calls whose times are known, in ns, and a few per cent of noise.
class Calls {
 public:
  explicit Calls(std::vector<std::uint64_t> times) : times_(std::move(times)) {}
  void set(std::vector<std::uint64_t> times) { times_ = std::move(times); }

  // Runs at least so many calls.
  void run(Learner& learner, std::uint64_t calls, std::uint32_t ready = kAll) {
    for (std::uint64_t done = 0; done < calls;) {
      const Learner::Leg leg = learner.next(ready);
      REQUIRE(leg.calls > 0);
      REQUIRE((leg.arm == 0 || (ready >> leg.arm & 1U) != 0));
      const std::uint64_t noise = mix64(++looks_) % 20;  // -2 to 2 %
      const std::uint64_t ns = times_[leg.arm] * (980 + 2 * noise) / 1000;
      spent += ns * leg.calls;
      ran.resize(times_.size());
      ran[leg.arm] += leg.calls;
      if (leg.timed) learner.heard(leg, ns, exchange);
      exchanges += leg.timed ? 1 : 0;
      done += leg.calls;
    }
  }

  std::uint64_t exchange = 300;  // ns of one
  std::uint64_t exchanges = 0;
  std::uint64_t spent = 0;  // ns of all calls
  std::vector<std::uint64_t> ran;

 private:
  std::vector<std::uint64_t> times_;
  std::uint64_t looks_ = 0;
};

TEST_CASE("the fastest program is found from a bad one, within 2,000 calls") {
  for (std::uint32_t fastest = 0; fastest < 8; ++fastest) {
    std::vector<std::uint64_t> times(8, 20'000);
    for (std::uint32_t a = 0; a < 8; ++a) times[a] += 7'000 * a;
    times[0] = 100'000;
    times[fastest] = 15'000;
    Learner learner(8);
    Calls calls(times);
    calls.run(learner, 2000);
    CHECK(learner.settled());
    CHECK(learner.best() == fastest);
    CHECK(learner.best_ns() > 14'000);
    CHECK(learner.best_ns() < 16'000);
  }
}

TEST_CASE("trials cost no more than their share of the time") {
  for (const std::uint32_t share : {0U, 1'000U, 20'000U, 100'000U}) {
    std::vector<std::uint64_t> times(8, 200'000);  // every other program is 20 times slower
    times[0] = 10'000;
    Learner learner(8, 0, share);
    Calls calls(times);
    calls.run(learner, 100'000);
    const std::uint64_t best_possible = 100'000 * 10'000ULL;
    const double extra = static_cast<double>(calls.spent) / static_cast<double>(best_possible) - 1.0;
    // One leg may go beyond, as a program's time is not known before it has run.
    CHECK(extra < share / 1e6 * 1.05 + 2 * 19 / 100'000.0 + 0.01);
    CHECK(learner.best() == 0);
    CHECK(calls.ran[0] >= 95'000);
    if (share == 0) CHECK(calls.ran[1] == 0);
  }
}

TEST_CASE("another load is noticed, and a known one is recognized") {
  Learner learner(4);
  Calls calls({10'000, 8'000, 30'000, 12'000});
  calls.run(learner, 3000);
  REQUIRE(learner.best() == 1);
  calls.set({40'000, 60'000, 30'000, 12'000});  // a neighbour begins
  calls.run(learner, 900);
  CHECK(learner.best() == 3);
  CHECK(learner.changes() == 1);
  calls.run(learner, 3000);
  calls.set({10'000, 8'000, 30'000, 60'000});  // and ends
  calls.run(learner, 900);
  CHECK(learner.best() == 1);
  calls.run(learner, 3000);
  const std::vector<std::uint64_t> before = calls.ran;
  calls.set({40'000, 60'000, 30'000, 12'000});  // and begins again: nothing has to be tried
  calls.run(learner, 600);
  CHECK(learner.best() == 3);
  CHECK(calls.ran[2] == before[2]);
}

TEST_CASE("exchanges take less than 1 % of the time of short calls, and another load is noticed soon") {
  Learner learner(2);
  Calls calls({600, 500});
  calls.exchange = 3000;
  calls.run(learner, 5000);
  REQUIRE(learner.settled());
  calls.exchanges = 0;
  calls.spent = 0;
  calls.run(learner, 100'000);
  CHECK(calls.exchanges * calls.exchange * 1000 < calls.spent * 7);
  calls.set({600, 2000});
  calls.run(learner, 1200);
  CHECK(learner.changes() == 1);
  // Where a call takes much longer than an exchange, looks are more frequent.
  Learner slow(1);
  Calls longer({100'000});
  longer.run(slow, 100'000);
  CHECK(longer.exchanges > 350);
}

TEST_CASE("programs that are not ready or cannot be run are not run") {
  Learner learner(3);
  Calls calls({10'000, 5'000, 2'000});
  calls.run(learner, 500, 1);
  CHECK(calls.ran[0] >= 500);
  CHECK_FALSE(learner.settled());
  calls.run(learner, 500, 3);
  CHECK(calls.ran[2] == 0);
  learner.exclude(2);
  calls.run(learner, 500, 3);
  CHECK(learner.settled());
  CHECK(learner.best() == 1);
  CHECK(calls.ran[2] == 0);
  Learner none(3);
  none.exclude(1);
  none.exclude(2);
  calls.run(none, 500, 1);
  CHECK(none.settled());
  CHECK(none.best() == 0);
}

TEST_CASE("what an earlier run has learned is tried first, and alone") {
  Learner learner(6, 4);
  Calls calls({10'000, 9'000, 9'000, 9'000, 5'000, 9'000});
  calls.run(learner, 300);
  CHECK(learner.settled());
  CHECK(learner.best() == 4);
  CHECK(calls.ran[1] + calls.ran[2] + calls.ran[3] + calls.ran[5] == 0);
}

TEST_CASE("learners that are told the same say the same") {
  std::vector<Learner> all(3, Learner(5));
  std::uint64_t seed = 1;
  for (int i = 0; i < 5000; ++i) {
    const Learner::Leg leg = all[0].next(kAll);
    for (std::size_t r = 1; r < all.size(); ++r) {
      const Learner::Leg other = all[r].next(kAll);
      REQUIRE(other.arm == leg.arm);
      REQUIRE(other.calls == leg.calls);
      REQUIRE(other.timed == leg.timed);
    }
    const std::uint64_t ns = mix64(++seed) % 1'000'000;
    for (Learner& learner : all) {
      if (leg.timed) learner.heard(leg, ns, 100);
    }
  }
}

}  // namespace
}  // namespace gc3::select
