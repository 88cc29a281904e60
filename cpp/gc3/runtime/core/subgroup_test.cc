#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/test_groups.h"
#include "gc3/runtime/core/waiting/progress.h"

namespace gc3::core {
namespace {

using testing::alone;
using testing::held;
using testing::kShort;
using testing::run_ranks;

TEST_CASE("groups are made by their ranks only, also overlapping groups, and thousands of them") {
  run_ranks(4, [](Group& world) {
    const std::uint32_t rank = world.rank();
    if (rank == 3) return true;  // takes no part
    for (int i = 0; i < 1000; ++i) {
      const bool first = rank < 2;
      const std::vector<std::uint32_t> pair = first ? std::vector<std::uint32_t>{1, 0} : std::vector<std::uint32_t>{2};
      auto small = world.subgroup(pair, "pair", {}, {});
      auto wide = world.subgroup({0, 1, 2}, "wide", {}, {});
      if (!small.ok() || !wide.ok()) return false;
      if (small.value()->rank() != (first ? 1 - rank : 0) || wide.value()->rank() != rank) return false;
      Group& group = *wide.value();
      if (!group.begin({CallKind::barrier}).ok()) return false;
      const auto all = group.exchange({std::uint64_t{rank} + i}, {});
      if (!all.ok() || all.value()[2][0] != 2U + i) return false;
      group.finish();
    }
    return held() < (1U << 23U);  // of 2,000 groups
  });
}

// A call of a group: what each rank gives, or the error.
Result<std::vector<Group::Payload>> call(Group& group, CallKind kind, std::uint64_t gives) {
  GC3_CHECK(group.begin({kind}));
  auto all = group.exchange({gives}, {});
  if (all.ok()) group.finish();
  return all;
}

TEST_CASE("if a rank does not make a group, only the group is given up on the others" * doctest::test_suite("waits")) {
  run_ranks(3, [](Group& world) {
    if (world.rank() != 2) {
      const auto made = world.subgroup({0, 1, 2}, "rows", kShort, {});
      if (!made.ok()) return false;
      const auto met = call(*made.value(), CallKind::barrier, 0);
      if (met.ok() || met.error().code != ErrorCode::Timeout) return false;
      if (met.error().message.find("group rows: ") != 0) return false;
    }
    return call(world, CallKind::barrier, 0).ok();
  });
}

TEST_CASE("a lost rank of a group is named by its number in the group and its number in the job") {
  run_ranks(
      4,
      [](Group& world) {
        const auto odd = world.split(world.rank() % 2, 0, {});
        if (!odd.ok()) return false;
        const auto turned = odd.value()->subgroup({1, 0}, "", {}, {});
        if (!turned.ok()) return false;
        if (world.rank() == 3) return raise(SIGKILL) == 0;
        if (world.rank() != 1) return true;
        for (const auto* const group : {&odd.value(), &turned.value()}) {
          const auto lost = call(**group, CallKind::barrier, 0);
          const std::string number = group == &odd.value() ? "rank 1" : "rank 0";
          if (lost.ok() || lost.error().code != ErrorCode::RankLost) return false;
          if (lost.error().message.find(number + " of the group, rank 3 of the job (process ") != 0) return false;
        }
        return true;
      },
      3);
}

TEST_CASE("groups with names are made, and first used, in any order, also by two threads") {
  run_ranks(2, [](Group& world) {
    const std::uint32_t rank = world.rank();
    std::vector<std::unique_ptr<Group>> groups(200);  // more than the offers of one page
    for (std::uint32_t i = 0; i < groups.size(); ++i) {
      const std::uint32_t n = rank == 0 ? i : 199 - i;
      auto made = world.subgroup({1, 0}, std::to_string(n), {}, {});
      if (!made.ok()) return false;
      groups[n] = std::move(made.value());
    }
    const auto use = [&](std::uint32_t n) {
      const auto all = call(*groups[n], CallKind::barrier, n);
      return all.ok() && all.value()[0][0] == n && all.value()[1][0] == n;
    };
    for (std::uint32_t n = 2; n < groups.size(); ++n) {
      if (!use(n)) return false;
    }
    bool good = false;  // in the other thread
    std::thread other([&] { good = use(rank); });
    const bool own = use(1 - rank);
    other.join();
    return own && good;
  });
}

TEST_CASE("ranks that make other groups without names, or call something else, learn at once what all do") {
  using Ranks = std::vector<std::uint32_t>;
  const std::vector<std::vector<Ranks>> mistakes = {{{0, 1}, {1, 2}, {0, 2}},
                                                    {{0, 1, 2}, {0, 1, 2}, {0, 2}},
                                                    {{0, 1, 2}, {2, 1, 0}, {0, 1, 2}},
                                                    {{0, 1}, {0, 1, 2}, {1, 2}},
                                                    {{0, 1}, {}, {}}};
  for (const std::vector<Ranks>& lists : mistakes) {
    run_ranks(3, [&](Group& world) {
      const Ranks& own = lists[world.rank()];
      Status status;
      if (own.empty()) {
        const auto called = call(world, CallKind::barrier, 0);
        status = called.ok() ? Status() : Status(called.error());
      } else {
        const auto made = world.subgroup(own, "", {}, {});
        status = made.ok() ? Status() : Status(made.error());
      }
      if (status.ok() || status.error().code != ErrorCode::CallsDiffer) return false;
      const std::string said = status.error().str();
      return said.find("group of ranks 0, 1") != std::string::npos &&
             (!lists[1].empty() || said.find("rank 1: call 2 of the communicator, barrier") != std::string::npos);
    });
  }
}

TEST_CASE("ranks of which each waits for the next, and one that shrinks, are told who waits for what") {
  run_ranks(3, [](Group& world) {
    const std::uint32_t rank = world.rank();
    const std::vector<std::vector<std::uint32_t>> lists = {{0, 1}, {1, 2}, {0, 2}};
    const auto made = world.subgroup(lists[rank], "", {}, {}, true, "a.py:" + std::to_string(rank));
    const std::string said = made.ok() ? "" : made.error().str();
    return said.find("rank 0: group of ranks 0, 1, made at a.py:0, awaits rank 1") != std::string::npos &&
           said.find("rank 1: group of ranks 1, 2, made at a.py:1, awaits rank 2") != std::string::npos &&
           said.find("rank 2: group of ranks 0, 2, made at a.py:2, awaits rank 0") != std::string::npos;
  });
  run_ranks(2, [](Group& world) {
    if (world.rank() == 0) {
      const auto made = world.subgroup({0, 1}, "", {}, {});
      const std::string said = made.ok() ? "" : made.error().str();
      if (said.find("rank 1: group of ranks 0, 1, made at shrink(), awaits rank 0") == std::string::npos) return false;
    }
    return world.shrink({}, {}).ok();
  });
  run_ranks(2, [](Group& world) {
    if (world.rank() == 0) {
      const auto called = call(world, CallKind::barrier, 0);
      const std::string said = called.ok() ? "" : called.error().str();
      if (said.find("rank 0: call 2 of the communicator, barrier") == std::string::npos) return false;
      if (said.find("rank 1: group of ranks 0, 1, made at shrink()") == std::string::npos) return false;
    }
    return world.shrink({}, {}).ok();
  });
}

TEST_CASE("groups without names of the same ranks are told apart by the places where they are made") {
  run_ranks(3, [](Group& world) {
    if (world.rank() == 2) return true;
    const bool first = world.rank() == 0;
    if (!world.subgroup({0, 1}, "", {}, {}, true, "a.py:3").ok()) return false;
    const auto made = world.subgroup({0, 1}, "", {}, {}, true, first ? "a.py:4" : "a.py:5");
    if (made.ok() || made.error().code != ErrorCode::CallsDiffer || world.check().ok()) return false;
    const std::string said = made.error().str();
    return said.find("rank 0: group of ranks 0, 1, made at a.py:4") != std::string::npos &&
           said.find("rank 1: group of ranks 0, 1, made at a.py:5") != std::string::npos;
  });
}

TEST_CASE("a rank whose shrink() is refused tells the others at once, and all may shrink again") {
  run_ranks(3, [](Group& world) {
    const Diagnostic wrong(ErrorCode::BadOption, "timeout=-1");
    const auto refused = world.shrink(60, {}, world.rank() == 1 ? &wrong : nullptr);
    if (refused.ok()) return false;
    const std::string said = refused.error().str();
    const bool told = refused.error().code == ErrorCode::CallsDiffer &&
                      said.find("rank 1: a call with wrong arguments: ") != std::string::npos;
    if (world.rank() == 1 ? refused.error().code != ErrorCode::BadOption : !told) return false;
    const auto again = world.shrink(60, {});
    return again.ok() && call(*again.value(), CallKind::barrier, 0).ok();
  });
}

TEST_CASE("a group without a name waits for a rank whose started call, or whose earlier call, goes on") {
  run_ranks(2, [](Group& world) {
    Progress progress;
    std::shared_future<Status> started;
    const auto barrier = [&] {
      const auto met = call(world, CallKind::barrier, 0);
      return met.ok() ? Status() : Status(met.error());
    };
    if (world.rank() == 1) {
      started = progress.start(barrier).value();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // in which rank 0 would find a difference
    }
    if (!world.subgroup({0, 1}, "", {}, {}).ok()) return false;
    return world.rank() == 1 ? started.get().ok() : barrier().ok();
  });
}

TEST_CASE("the time-out of a group without a name tells of the call in which another rank is") {
  run_ranks(2, [](Group& world) {
    if (world.rank() == 1) return call(world, CallKind::barrier, 0).ok();
    for (;;) {  // until that has begun
      const auto made = world.subgroup({0, 1}, "", 0.1, {}, false);
      if (made.ok() || made.error().code != ErrorCode::Timeout) return false;
      const std::string said = made.error().str();
      if (said.find("rank 1 is in call 2 of the communicator, barrier") != std::string::npos) break;
    }
    return call(world, CallKind::barrier, 0).ok();
  });
}

TEST_CASE("a rank that ends before it makes a group is reported") {
  for (const std::uint32_t gone : {0U, 1U}) {
    CAPTURE(gone);
    run_ranks(2, [gone](Group& world) {
      if (world.rank() == gone) return true;
      const auto made = world.subgroup({0, 1}, "", {}, {});
      return !made.ok() && made.error().code == ErrorCode::RankLost &&
             made.error().message.find("rank " + std::to_string(gone)) == 0;
    });
  }
}

TEST_CASE("a list of ranks that is no group of this rank is refused") {
  const std::unique_ptr<Group> group = alone();
  CHECK(group->subgroup({0}, "", {}, {}).ok());
  CHECK(group->subgroup({}, "", {}, {}).error().code == ErrorCode::BadArgument);
  CHECK(group->subgroup({0, 0}, "", {}, {}).error().code == ErrorCode::BadArgument);
  CHECK(group->subgroup({0, 1}, "", {}, {}).error().code == ErrorCode::RankOutOfRange);
}

}  // namespace
}  // namespace gc3::core
