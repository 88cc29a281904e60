// Several programs at once whose times can be computed by hand.
#include "gc3/sim/together.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "gc3/base/errors/simulator.h"
#include "gc3/sim/test_machines.h"

namespace gc3::sim {
namespace {

constexpr Time kNever = std::numeric_limits<Time>::max();

Options unrecorded() {
  Options o = options();
  o.record = false;
  return o;
}

Simulator simulator_of(const ir::Program& program, const Machine& machine,
                       const std::vector<std::uint32_t>& places = {}) {
  auto made = Simulator::create(program, machine, places);
  REQUIRE(made.ok());
  return std::move(made.value());
}

std::uint32_t added(Together& together, const Simulator& simulator, std::uint64_t bytes) {
  const auto job = together.add(simulator, {bytes, 4}, unrecorded());
  REQUIRE(job.ok());
  return job.value();
}

void launch_all(Together& together, std::uint32_t job, std::uint32_t ranks, Time at) {
  for (std::uint32_t r = 0; r < ranks; ++r) REQUIRE(together.launch(job, r, at).ok());
}

std::vector<Together::End> ends_of(Together& together) {
  std::vector<Together::End> ends;
  for (;;) {
    const auto end = together.advance(kNever);
    REQUIRE(end.ok());
    if (!end.value()) return ends;
    ends.push_back(*end.value());
  }
}

}  // namespace

TEST_CASE("one program takes the time that it takes alone") {
  const ir::Program program = chain(4, 10);
  const Machine machine = line(4);
  const Simulator simulator = simulator_of(program, machine);
  const auto alone = simulator.run({4000, 4}, unrecorded());
  REQUIRE(alone.ok());
  Together together(machine.data().resources.size());
  launch_all(together, added(together, simulator, 4000), 4, picoseconds(unrecorded().start.launch_s));
  const std::vector<Together::End> ends = ends_of(together);
  REQUIRE(ends.size() == 4);
  CHECK(ends.back().time == alone.value().time);
  for (const Together::End& end : ends) CHECK(end.time == alone.value().rank_end[end.rank]);
  CHECK(together.slice_ops() == alone.value().slice_ops);
  CHECK(together.use()[0].busy == alone.value().use[0].busy);
}

TEST_CASE("two programs take turns on a link") {
  // A message of 4000 bytes takes the link 4 us and a threadblock 3 us; latency 2 us; 3 us to store.
  const ir::Program program = chain(2, 1);
  const Machine machine = line(2);
  const Simulator simulator = simulator_of(program, machine);
  Together together(machine.data().resources.size());
  const std::uint32_t first = added(together, simulator, 4000);
  const std::uint32_t second = added(together, simulator, 4000);
  launch_all(together, second, 2, kMicrosecond);
  launch_all(together, first, 2, 0);
  const std::vector<Together::End> expected = {{4 * kMicrosecond, first, 0},
                                               {8 * kMicrosecond, second, 0},
                                               {(4 + 2 + 3) * kMicrosecond, first, 1},
                                               {(8 + 2 + 3) * kMicrosecond, second, 1}};
  CHECK(ends_of(together) == expected);
}

TEST_CASE("programs proceed in the order of time") {
  // Each sends three messages that take the link 4 us. They alternate there, although all of the first could be
  // simulated before the second.
  const ir::Program program = chain(2, 3);
  const Machine machine = line(2);
  const Simulator simulator = simulator_of(program, machine);
  Together together(machine.data().resources.size());
  const std::uint32_t first = added(together, simulator, 4000);
  const std::uint32_t second = added(together, simulator, 4000);
  launch_all(together, first, 2, 0);
  launch_all(together, second, 2, kMicrosecond);
  const std::vector<Together::End> expected = {{20 * kMicrosecond, first, 0},
                                               {24 * kMicrosecond, second, 0},
                                               {(20 + 2 + 3) * kMicrosecond, first, 1},
                                               {(24 + 2 + 3) * kMicrosecond, second, 1}};
  CHECK(ends_of(together) == expected);
}

TEST_CASE("programs on other ranks and links do not disturb each other") {
  const ir::Program program = chain(2, 1);
  const Machine machine = line(4);
  const Simulator low = simulator_of(program, machine);
  const Simulator high = simulator_of(program, machine, {3, 2});
  Together together(machine.data().resources.size());
  launch_all(together, added(together, low, 4000), 2, 0);
  launch_all(together, added(together, high, 4000), 2, 0);
  CHECK(ends_of(together).back().time == 9 * kMicrosecond);
  CHECK(together.use()[0].bytes == 4000);
  CHECK(together.use()[5].bytes == 4000);  // 3 -> 2
}

TEST_CASE("a rank begins when it is launched, and the others wait for it") {
  const ir::Program program = chain(2, 1);
  const Machine machine = line(2);
  const Simulator simulator = simulator_of(program, machine);
  Together together(machine.data().resources.size());
  const std::uint32_t job = added(together, simulator, 4000);
  REQUIRE(together.launch(job, 1, 0).ok());
  auto end = together.advance(20 * kMicrosecond);
  REQUIRE(end.ok());
  CHECK_FALSE(end.value());  // the sender has not begun
  REQUIRE(together.launch(job, 0, 20 * kMicrosecond).ok());
  end = together.advance(23 * kMicrosecond);
  REQUIRE(end.ok());
  CHECK_FALSE(end.value());  // it is known, but lies later
  CHECK(ends_of(together).back() == Together::End{29 * kMicrosecond, job, 1});
  CHECK_FALSE(together.launch(job, 0, 30 * kMicrosecond).ok());  // has ended
}

TEST_CASE("what cannot run together is refused") {
  const ir::Program program = chain(2, 1);
  const Machine machine = line(2);
  const Simulator simulator = simulator_of(program, machine);
  Together together(machine.data().resources.size());
  Options recorded = options();
  CHECK(together.add(simulator, {4000, 4}, recorded).error().code == ErrorCode::BadSimulation);
  recorded.record = false;
  recorded.sharing = Sharing::max_min;
  CHECK(together.add(simulator, {4000, 4}, recorded).error().code == ErrorCode::BadSimulation);
  const Machine shared = line(2, 1);
  const Simulator on_cores = simulator_of(program, shared);
  CHECK(together.add(on_cores, {4000, 4}, unrecorded()).error().code == ErrorCode::BadSimulation);
  Together small(1);
  CHECK_FALSE(small.add(simulator, {4000, 4}, unrecorded()).ok());

  const std::uint32_t job = added(together, simulator, 4000);
  CHECK_FALSE(together.launch(job + 1, 0, 0).ok());
  CHECK_FALSE(together.launch(job, 2, 0).ok());
  REQUIRE(together.launch(job, 0, 0).ok());
  CHECK_FALSE(together.launch(job, 0, 0).ok());
  REQUIRE(together.advance(3 * kMicrosecond).ok());
  CHECK_FALSE(together.launch(job, 1, -1).ok());
}

TEST_CASE("places of ranks are checked") {
  const ir::Program program = chain(2, 1);
  const Machine machine = line(3);
  for (const std::vector<std::uint32_t>& places :
       {std::vector<std::uint32_t>{0}, std::vector<std::uint32_t>{0, 3}, std::vector<std::uint32_t>{1, 1}}) {
    const auto made = Simulator::create(program, machine, places);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().code == ErrorCode::BadSimulation);
  }
}

TEST_CASE("programs that wait forever are named") {
  const ir::Program program = crossed();
  const Machine machine = line(2);
  const Simulator simulator = simulator_of(program, machine);
  Together together(machine.data().resources.size());
  launch_all(together, added(together, simulator, 4000), 2, 0);
  const auto end = together.advance(kNever);
  REQUIRE_FALSE(end.ok());
  CHECK(end.error().code == ErrorCode::SimulatedDeadlock);
}

}  // namespace gc3::sim
