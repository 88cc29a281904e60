// Who moves messages: threadblocks that push, threadblocks that pull, copy engines.
#include <doctest/doctest.h>

#include "gc3/base/errors/compiler.h"
#include "gc3/base/errors/model.h"
#include "gc3/base/errors/simulator.h"
#include "gc3/sim/explain.h"
#include "gc3/sim/test_machines.h"

namespace gc3::sim {
namespace {

Machine pulling(std::uint32_t ranks) {
  MachineData data = line(ranks).data();
  data.classes[0].requests = 0.1;
  return std::move(Machine::create(std::move(data)).value());
}

// Each rank of a line has so many engines, which start a copy in 3 us.
Machine copying(std::uint32_t engines, std::uint32_t ranks = 2) {
  MachineData data = line(ranks).data();
  data.classes[0].engines = true;
  data.engines.resize(ranks);
  for (std::vector<std::uint32_t>& of : data.engines) {
    for (std::uint32_t k = 0; k < engines; ++k) {
      of.push_back(static_cast<std::uint32_t>(data.resources.size()));
      data.resources.push_back({1e15, 3e-6});
    }
  }
  return std::move(Machine::create(std::move(data)).value());
}

// Threadblocks that take no time.
Options instant() {
  Options o = options();
  o.protocol.op_s = 0;
  o.protocol.bytes_per_s.fill(1e18);
  return o;
}

// Rank `from` sends a message to the other of two ranks on each of `channels` channels; if `back`, it gets as many.
ir::Program between(std::uint32_t channels, bool back) {
  ir::Builder b;
  for (std::uint32_t r = 0; r < 2; ++r) {
    b.rank(kChunks);
    for (std::uint32_t c = 0; c < channels; ++c) {
      for (const bool sends : {true, false}) {
        if (!back && sends != (r == 0)) continue;
        b.threadblock(sends ? 1 - r : kNobody, sends ? kNobody : 1 - r, c);
        b.step(step(sends ? Opcode::send : Opcode::recv));
      }
    }
  }
  return built(b);
}

// The middle of three ranks sends a message to each neighbour.
ir::Program to_both_sides() {
  ir::Builder b;
  for (std::uint32_t r = 0; r < 3; ++r) {
    b.rank(kChunks);
    for (const std::uint32_t peer : {0U, 2U}) {
      if (r != 1 && r != peer) continue;
      b.threadblock(r == 1 ? peer : kNobody, r == 1 ? kNobody : 1, 0);
      b.step(step(r == 1 ? Opcode::send : Opcode::recv));
    }
  }
  return built(b);
}

Outcome run(const ir::Program& program, const Machine& machine, const Options& o) {
  const auto simulator = Simulator::create(program, machine);
  REQUIRE(simulator.ok());
  auto outcome = simulator.value().run({4000, 4}, o);
  REQUIRE(outcome.ok());
  return std::move(outcome.value());
}

}  // namespace

TEST_CASE("the receiver's threadblock pulls: the links serve it, and its requests the way back") {
  const Outcome o = run(chain(2, 1), pulling(2), options());
  // Launch 5; the sender stores the slice where it is (1 + 2) and says so (2); then the link takes 4 us, the
  // receiver's own work 3.
  CHECK(o.time == (5 + 3 + 2 + 4) * kMicrosecond);
  CHECK(o.use[0].bytes == 4000);
  CHECK(o.use[1].bytes == 400);
  CHECK(o.rank_end[0] == 8 * kMicrosecond);
  const Explanation why = explain(o);
  Time total = 0;
  for (const Time t : why.on_path) total += t;
  CHECK(total == o.time);
  CHECK(why.on_path[static_cast<int>(Cause::link)] == 4 * kMicrosecond);
}

TEST_CASE("requests take bandwidth from the data of the other direction") {
  // As above, but the second one's link has served the requests of the first.
  CHECK(run(between(1, true), pulling(2), options()).time == 14'400'000);
  CHECK(run(between(1, true), line(2), options()).time == (5 + 4 + 2 + 3) * kMicrosecond);
  // Five messages each way keep the links busy.
  const Outcome both = run(between(5, true), pulling(2), options());
  CHECK(both.use[0].busy == 5 * 4'400'000);
  CHECK(both.time == (5 + 3 + 2 + 5 * 4) * kMicrosecond + 5 * 400'000);
}

TEST_CASE("an engine moves one message at a time, each after its start") {
  // Launch 5, start 3, link 4, latency 2.
  const Outcome one = run(between(1, false), copying(1), instant());
  CHECK(one.time == (5 + 3 + 4 + 2) * kMicrosecond);
  CHECK(one.use[0].bytes == 4000);
  // Two to one peer follow each other on one engine.
  const Outcome two = run(between(2, false), copying(2), instant());
  CHECK(two.time == (5 + 2 * (3 + 4) + 2) * kMicrosecond);
  const Explanation why = explain(two);
  CHECK(why.on_path[static_cast<int>(Cause::link)] == 2 * (3 + 4) * kMicrosecond);
  // To two peers over two links: with one engine one after the other, with two at the same time.
  CHECK(run(to_both_sides(), copying(1, 3), instant()).time == (5 + 2 * (3 + 4) + 2) * kMicrosecond);
  CHECK(run(to_both_sides(), copying(2, 3), instant()).time == (5 + 3 + 4 + 2) * kMicrosecond);
}

TEST_CASE("a rank's processor submits its copies one after the other, ahead of the engines") {
  MachineData data = copying(2).data();
  data.submit_s = 10e-6;
  const Machine machine = std::move(Machine::create(std::move(data)).value());
  // The first copy is submitted at 15, and through at 22; the second is submitted at 25.
  CHECK(run(between(2, false), machine, instant()).time == (5 + 2 * 10 + 3 + 4 + 2) * kMicrosecond);
}

TEST_CASE("what cannot be moved so is refused") {
  const ir::Program program = between(1, false);
  const auto shared = Simulator::create(program, copying(1)).value().run({4000, 4}, options(Sharing::max_min));
  CHECK(shared.error().code == ErrorCode::BadSimulation);

  ir::Program reduces = between(1, false);
  reduces.protocol = model::Protocol::Copy;
  CHECK(Simulator::create(reduces, copying(1)).ok());
  for (ir::Instruction& i : reduces.instructions) {
    if (i.opcode == Opcode::recv) i.opcode = Opcode::recv_reduce_copy;
  }
  CHECK(Simulator::create(reduces, copying(1)).error().code == ErrorCode::CopyReduces);

  MachineData without = line(2).data();
  without.classes[0].engines = true;
  CHECK(Machine::create(std::move(without)).error().code == ErrorCode::BadSimulation);

  MachineData one_way = line(2).data();
  one_way.classes[0].requests = 0.1;
  one_way.links.pop_back();
  const Machine machine = std::move(Machine::create(std::move(one_way)).value());
  CHECK(Simulator::create(program, machine).error().code == ErrorCode::NoPath);
}

}  // namespace gc3::sim
