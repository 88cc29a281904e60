// Whole runs of small programs whose times can be computed by hand.
#include "gc3/base/errors/simulator.h"

#include <doctest/doctest.h>

#include <string>

#include "gc3/base/errors/model.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/sim/alpha_beta.h"
#include "gc3/sim/cores.h"
#include "gc3/sim/explain.h"
#include "gc3/sim/simulator.h"
#include "gc3/sim/test_machines.h"

namespace gc3::sim {
namespace {

Outcome run(const ir::Program& program, const Machine& machine, const Call& call, const Options& o) {
  const auto simulator = Simulator::create(program, machine);
  REQUIRE(simulator.ok());
  auto outcome = simulator.value().run(call, o);
  REQUIRE(outcome.ok());
  return std::move(outcome.value());
}

Time sum(const auto& times) {
  Time total = 0;
  for (const Time t : times) total += t;
  return total;
}

}  // namespace

TEST_CASE("one message over two hops: every part of the time") {
  for (const Sharing sharing : {Sharing::serial, Sharing::max_min}) {
    const Outcome o = run(chain(3, 1), line(3), {2000, 4}, options(sharing));
    // Launch 5; twice the link's 2 us (the threadblock's own 1 + 1 are shorter) and 2 us of latency; 1 + 1 us to store.
    CHECK(o.time == (5 + 2 * (2 + 2) + 2) * kMicrosecond);
    CHECK(o.slice_ops == 3);
    CHECK(o.use[0].busy == 2 * kMicrosecond);
    CHECK(o.use[0].bytes == 2000);
    CHECK(o.use[1].bytes == 0);  // the way back
    CHECK(o.rank_end[0] == 7 * kMicrosecond);
    const Explanation why = explain(o);
    CHECK(sum(why.on_path) == o.time);
    CHECK(why.on_path[static_cast<int>(Cause::launch)] == 5 * kMicrosecond);
    CHECK(why.on_path[static_cast<int>(Cause::latency)] == 4 * kMicrosecond);
    if (sharing == Sharing::serial) CHECK(why.path.front().cause == Cause::launch);
  }
}

TEST_CASE("messages follow each other: the slowest hop sets the pace") {
  // 4 KB take the link 4 us and a threadblock 3 us.
  const Outcome o = run(chain(3, 10), line(3), {4000, 4}, options(Sharing::serial, 4));
  // 5 + ten times 4 us on the first link, then the second link (4), two latencies (4) and the last store (3).
  CHECK(o.time == (5 + 40 + 4 + 4 + 3) * kMicrosecond);
}

TEST_CASE("instructions that are split travel as messages of one slot") {
  for (const Sharing sharing : {Sharing::serial, Sharing::max_min}) {
    Options o = options(sharing);
    // Three chunks of 4000 bytes in slots of 4000: in three tiles of 1280 bytes and one of 160, or at once in three
    // messages.
    const Outcome whole = run(chain(2, 1, 3), line(2), {4000, 4}, o);
    CHECK(whole.slice_ops == 2 * 4);
    o.protocol.split = true;
    const Outcome split = run(chain(2, 1, 3), line(2), {4000, 4}, o);
    CHECK(split.slice_ops == 2 * 3);
    CHECK(split.use[0].bytes == 12'000);
    // Launch 5, three times 4 us on the link, 2 us of latency, and 3 us to store the last; the third message waits for
    // the slot of the first, which comes back after 4 + 2 + 3 + 1 us instead of 8.
    CHECK(split.time == (5 + 10 + 4 + 2 + 3) * kMicrosecond);
    // Each message needs a slot of its own: with one, the next waits until the receiver is done (3 us) and 1 us later.
    o.protocol.slots = 1;
    CHECK(run(chain(2, 1, 3), line(2), {4000, 4}, o).time == (5 + 3 * (4 + 2 + 3) + 2 * 1) * kMicrosecond);
  }
}

TEST_CASE("a rank's memory limits what its threadblocks read and write") {
  MachineData data = line(2).data();
  const auto first = static_cast<std::uint32_t>(data.resources.size());
  data.memory = {first, first + 1};
  data.resources.insert(data.resources.end(), 2, {1e9, 0});
  const Machine machine = std::move(Machine::create(data).value());
  Options o = options();
  o.protocol.memory_bytes[static_cast<std::size_t>(Opcode::send)] = 2;
  o.protocol.memory_bytes[static_cast<std::size_t>(Opcode::recv)] = 1;
  const Outcome one = run(chain(2, 1), machine, {4000, 4}, o);
  // Launch 5; 8000 bytes of memory are slower than the link's 4 us; 2 us of latency; 4 us instead of the store's 3.
  CHECK(one.time == (5 + 8 + 2 + 4) * kMicrosecond);
  CHECK(one.use[first].bytes == 8000);
  CHECK(one.use[first + 1].busy == 4 * kMicrosecond);
  CHECK(one.records[0].delivered_by == Cause::link);
  CHECK(one.records[0].resource == first);
  // Of steps that send, all transfers at once have the same bound.
  o.sharing = Sharing::max_min;
  CHECK(run(chain(2, 1), machine, {4000, 4}, o).time == (5 + 8 + 2 + 3) * kMicrosecond);
  data.memory = {first};
  CHECK_FALSE(Machine::create(data).ok());
  data.memory = {first, first + 2};
  CHECK_FALSE(Machine::create(data).ok());
}

TEST_CASE("cut-through: the next hop starts with the first line") {
  const Outcome whole = run(chain(4, 1), line(4), {4000, 4}, options());
  const Outcome lines = run(chain(4, 1), line(4), {4000, 4}, options(Sharing::serial, 2, true));
  CHECK(whole.time == (5 + 3 * (4 + 2) + 3) * kMicrosecond);
  // A line arrives 1.2 us after its start. Each hop adds that and the latency; the first hop adds its whole 4 us.
  CHECK(lines.time == 5 * kMicrosecond + 4 * kMicrosecond + 3 * (2 * kMicrosecond + 1'200'000));
  const Outcome fluid = run(chain(4, 1), line(4), {4000, 4}, options(Sharing::max_min, 2, true));
  CHECK(static_cast<double>(fluid.time) == doctest::Approx(static_cast<double>(lines.time)).epsilon(0.02));
}

TEST_CASE("cut-through: data that has arrived completely is not waited for any longer") {
  // Rank 0 is ten times as fast as a line at the usual rate: its 400 bytes are on the link for 0.4 us, a line would
  // take 1.2.
  Options o = options(Sharing::serial, 2, true);
  o.start.slowdown = {0.1, 1};
  CHECK(run(chain(2, 1), line(2), {400, 4}, o).time == 5 * kMicrosecond + 400'000 + 2 * kMicrosecond + 1'200'000);
}

TEST_CASE("cut-through: each hop of the path takes a line and the latency") {
  const Outcome o = run(chain(4, 1), line(4), {4000, 4}, options(Sharing::serial, 2, true));
  const Explanation why = explain(o);
  CHECK(sum(why.on_path) == o.time);
  CHECK(why.on_path[static_cast<int>(Cause::launch)] == 5 * kMicrosecond);
  CHECK(why.on_path[static_cast<int>(Cause::latency)] == o.time - 5 * kMicrosecond - 4 * kMicrosecond);
}

TEST_CASE(
    "cut-through: where the receiver is slow, its first line and the latency are on the path, not all that came") {
  Options o = options(Sharing::serial, 2, true);
  o.start.slowdown = {1, 4};
  const Outcome found = run(chain(2, 1), line(2), {4000, 4}, o);
  const Explanation why = explain(found);
  CHECK(why.on_path[static_cast<int>(Cause::launch)] == 5 * kMicrosecond);
  CHECK(why.on_path[static_cast<int>(Cause::latency)] == 1'200'000 + 2 * kMicrosecond);
  CHECK(why.on_path[static_cast<int>(Cause::program)] == 4 * 3 * kMicrosecond);
  CHECK(sum(why.on_path) == found.time);
}

TEST_CASE("one message alone takes the same time in all models of shared links") {
  for (const double message_s : {0.0, 3e-6}) {
    MachineData data = line(3).data();
    for (Resource& r : data.resources) r.message_s = message_s;
    const Machine machine = std::move(Machine::create(std::move(data)).value());
    for (const std::uint32_t slots : {1U, 4U}) {
      const Time serial = run(chain(3, 4), machine, {4000, 4}, options(Sharing::serial, slots)).time;
      const Time fluid = run(chain(3, 4), machine, {4000, 4}, options(Sharing::max_min, slots)).time;
      CHECK(static_cast<double>(fluid) == doctest::Approx(static_cast<double>(serial)).epsilon(1e-6));
    }
  }
  // A threadblock that need not wait for its link cannot get further ahead than its slots either.
  MachineData data = line(2).data();
  data.classes[0].staged = true;
  const Machine staged = std::move(Machine::create(std::move(data)).value());
  for (const Sharing sharing : {Sharing::serial, Sharing::max_min}) {
    const Time time = run(chain(2, 3), staged, {4000, 4}, options(sharing, 1)).time;
    CHECK(static_cast<double>(time) == doctest::Approx((5 + 2 * (4 + 2 + 3 + 1) + 4 + 2 + 3) * 1e6).epsilon(1e-6));
  }
}

TEST_CASE("alpha-beta: a step takes its longest latency, and simultaneous arrivals take turns") {
  // Links from 0 to 1, 5 us, and from 1 to 2, 2 us, carry a message each in the same step.
  MachineData data = line(3).data();
  data.classes = {{5e-6, 0, 0, false}, {2e-6, 0, 0, false}};
  for (Link& link : data.links) link.link_class = std::max(link.src, link.dst) == 1 ? 0 : 1;
  const Machine machine = std::move(Machine::create(std::move(data)).value());
  ir::Builder b;
  b.rank(kChunks);
  b.threadblock(1, kNobody, 0);
  b.step(step(Opcode::send));
  b.rank(kChunks);
  b.threadblock(kNobody, 0, 0);
  b.step(step(Opcode::recv));
  b.threadblock(2, kNobody, 0);
  b.step(step(Opcode::send));
  b.rank(kChunks);
  b.threadblock(kNobody, 1, 0);
  b.step(step(Opcode::recv));
  const Steps found = alpha_beta(Simulator::create(built(b), machine).value(), 1e9).value().merged;
  CHECK(found.steps == 1);
  CHECK(found.rounds == 1);
  CHECK(found.latency == 5 * kMicrosecond);
  // Three ranks on a switch: two send to the third, whose port takes one after the other.
  data = MachineData();
  data.node_of = {0, 0, 0};
  data.classes = {{1e-6, 0, 0, false}};
  data.resources.assign(6, {1e9, 0});
  data.fabrics = {{0, false, {{0, {0}, {1}}, {1, {2}, {3}}, {2, {4}, {5}}}}};
  const Machine star = std::move(Machine::create(std::move(data)).value());
  ir::Builder both;
  for (std::uint32_t r = 0; r < 2; ++r) {
    both.rank(kChunks);
    both.threadblock(2, kNobody, 0);
    both.step(step(Opcode::send));
  }
  both.rank(kChunks);
  for (std::uint32_t r = 0; r < 2; ++r) {
    both.threadblock(kNobody, r, 0);
    both.step(step(Opcode::recv));
  }
  const Steps arriving = alpha_beta(Simulator::create(built(both), star).value(), 1e9).value().merged;
  CHECK(arriving.steps == 1);
  CHECK(arriving.rounds == 2);
}

TEST_CASE("slots: a sender waits for the receiver to give one back") {
  const Outcome one = run(chain(2, 4), line(2), {4000, 4}, options(Sharing::serial, 1));
  // Each message: link 4, latency 2, store 3, and the slot's return 1.
  CHECK(one.time == (5 + 4 * (4 + 2 + 3) + 3) * kMicrosecond);
  const Explanation why = explain(one);
  CHECK(sum(why.on_path) == one.time);
  CHECK(why.stalls[static_cast<int>(Cause::credit)] > 0);
}

TEST_CASE("slots: a sender waits until the time at which a slot is returned") {
  // Rank 0 sends, copies twice, sends. Rank 1 takes three times as long: when rank 0 is about to send again, the end of
  // rank 1's receive is already known, but lies in the future.
  ir::Builder b;
  b.rank(kChunks);
  b.threadblock(1, kNobody, 0);
  for (const Opcode opcode : {Opcode::send, Opcode::copy, Opcode::copy, Opcode::send}) b.step(step(opcode));
  b.rank(kChunks);
  b.threadblock(kNobody, 0, 0);
  b.step(step(Opcode::recv));
  b.step(step(Opcode::recv));
  Options o = options(Sharing::serial, 1);
  o.start.slowdown = {1, 3};
  const Outcome found = run(built(b), line(2), {4000, 4}, o);
  // launch 5, link 4, latency 2, receive 9, the return of the slot 1; then the second message.
  CHECK(found.time == (5 + 4 + 2 + 9 + 1 + 4 + 2 + 9) * kMicrosecond);
  CHECK(explain(found).stalls[static_cast<int>(Cause::credit)] == 6 * kMicrosecond);
}

TEST_CASE("a deadlock shows its cycle") {
  const ir::Program program = crossed();
  const Machine machine = line(2);
  const auto simulator = Simulator::create(program, machine);
  const auto outcome = simulator.value().run({100, 4}, options());
  REQUIRE_FALSE(outcome.ok());
  CHECK(outcome.error().code == ErrorCode::SimulatedDeadlock);
  const std::string text = outcome.error().str();
  CHECK(text.find("rank 0 threadblock 0 step 0 (r) in tile 0 waits for a message from rank 1") != std::string::npos);
  CHECK(text.find("rank 1 threadblock 0 step 0 (r) in tile 0 waits for a message from rank 0") != std::string::npos);
}

TEST_CASE("a deadlock shows its cycle when only steps are counted, too") {
  const ir::Program program = crossed();
  const Machine machine = line(2);
  const auto simulator = Simulator::create(program, machine);
  const auto costs = alpha_beta(simulator.value(), 1e9);
  const auto given = alpha_beta_by(simulator.value(), 1e9, {1, 1});
  REQUIRE_FALSE(costs.ok());
  REQUIRE_FALSE(given.ok());
  const std::string text = costs.error().str();
  CHECK(text == given.error().str());
  CHECK(text.find("any number of slots, 2 threadblocks wait forever") != std::string::npos);
  CHECK(text.find("rank 0 threadblock 0 step 0 (r) waits for a message from rank 1") != std::string::npos);
  CHECK(text.find("rank 1 threadblock 0 step 0 (r) waits for a message from rank 0") != std::string::npos);
  // A send waits for a receive, whose message is sent only after the data of the first send has arrived.
  ir::Builder b;
  b.rank(kChunks);
  b.threadblock(1, 1, 0);
  b.step(step(Opcode::recv));
  b.step(step(Opcode::send));
  b.rank(kChunks);
  b.threadblock(0, kNobody, 0);
  const ir::Dependency after[] = {{1, 0}};
  b.step(step(Opcode::send), after);
  b.threadblock(kNobody, 0, 0);
  ir::Instruction awaited = step(Opcode::recv);
  awaited.has_dependents = 1;
  b.step(awaited);
  const ir::Program waiting = built(b);
  const auto stuck = alpha_beta(Simulator::create(waiting, machine).value(), 1e9);
  REQUIRE_FALSE(stuck.ok());
  CHECK(stuck.error().str().find("rank 1 threadblock 0 step 0 (s) waits for rank 1 threadblock 1 step 0 (r)") !=
        std::string::npos);
}

TEST_CASE("a program that no engine could run is refused") {
  const auto refused = [](const ir::Program& p, std::uint32_t ranks) {
    const Machine machine = line(ranks);
    const auto made = Simulator::create(p, machine);
    REQUIRE_FALSE(made.ok());
    return made.error().code;
  };
  CHECK(refused(chain(3, 1), 2) == ErrorCode::TooFewRanks);
  ir::Program lonely = chain(2, 1);
  lonely.instructions[1] = step(Opcode::nop, 0);
  CHECK(refused(lonely, 2) == ErrorCode::UnmatchedTransfer);
  ir::Program unequal = chain(2, 1);
  unequal.instructions[1].count = 2;
  CHECK(refused(unequal, 2) == ErrorCode::UnmatchedTransfer);
  ir::Builder far;
  for (std::uint32_t r = 0; r < 3; ++r) {
    far.rank(kChunks);
    if (r == 1) continue;
    far.threadblock(r == 0 ? 2 : kNobody, r == 2 ? 0 : kNobody, 0);
    far.step(step(r == 0 ? Opcode::send : Opcode::recv));
  }
  CHECK(refused(built(far), 3) == ErrorCode::NoPath);
  ir::Builder twice;
  twice.rank(kChunks);
  for (int t = 0; t < 2; ++t) {
    twice.threadblock(1, kNobody, 0);
    twice.step(step(Opcode::send));
  }
  twice.rank(kChunks);
  CHECK(refused(built(twice), 2) == ErrorCode::SharedConnection);
}

TEST_CASE("ranks that share a core take turns, late and slow ranks delay the others") {
  const Time alone = run(chain(2, 1), line(2), {2000, 4}, options()).time;
  Options o = options();
  o.start.delay_s = {3e-6, 0};
  CHECK(run(chain(2, 1), line(2), {2000, 4}, o).time == alone + 3 * kMicrosecond);
  o = options();
  o.start.slowdown = {1, 4};
  CHECK(run(chain(2, 1), line(2), {2000, 4}, o).time == alone + 6 * kMicrosecond);
  // Four messages, which both ranks move in 1.1 us each: on one core one after the other.
  CHECK(run(chain(2, 4), line(2, 1), {200, 4}, options()).time == 5 * kMicrosecond + 8 * 1'100'000);
}

TEST_CASE("a rank keeps its core until it has no work") {
  MachineData data = line(2, 1).data();
  data.core_switch_s = 10e-6;
  const Machine machine = std::move(Machine::create(std::move(data)).value());
  for (const Sharing sharing : {Sharing::serial, Sharing::max_min}) {
    const Outcome o = run(chain(2, 4), machine, {200, 4}, options(sharing));
    // Two slots: rank 0 sends two messages of 1.1 us each, rank 1 receives both, twice; three switches.
    CHECK(o.time == 5 * kMicrosecond + 4 * 2 * 1'100'000 + 3 * 10 * kMicrosecond);
    CHECK(sum(explain(o).on_path) == o.time);
    // Each turn is waited for during a switch and the second of the two messages.
    CHECK(explain(o).stalls[static_cast<int>(Cause::core)] == 3 * (10 * kMicrosecond + 1'100'000));
    CHECK(explain(o).work == 4 * 2 * 1'100'000);
  }
  // Four ranks in a line on two cores. Dealt out, ranks 2 and 3 have their turn while messages are in flight.
  data = line(4, 2).data();
  data.core_switch_s = 10e-6;
  for (const bool dealt : {false, true}) {
    data.cores_dealt = dealt;
    const Machine two = std::move(Machine::create(data).value());
    CHECK(run(chain(4, 1), two, {200, 4}, options()).time == (dealt ? 20'300'000 : 31'400'000));
  }
  const ir::Program program = crossed();
  const auto stuck = Simulator::create(program, machine).value().run({100, 4}, options());
  REQUIRE_FALSE(stuck.ok());
  CHECK(stuck.error().code == ErrorCode::SimulatedDeadlock);
}

TEST_CASE("ranks are on the cores of the engine's workers") {
  const auto cores_of = [](std::uint32_t ranks, bool dealt) {
    MachineData data = line(ranks, 2).data();
    data.cores_dealt = dealt;
    const Cores cores(data, ranks);
    std::string found;
    for (std::uint32_t r = 0; r < ranks; ++r) found += std::to_string(cores.core_of(r));
    return found;
  };
  CHECK(cores_of(4, false) == "0011");
  CHECK(cores_of(5, false) == "00111");  // a worker of w has ranks w * 5 / 2 to (w + 1) * 5 / 2
  CHECK(cores_of(7, false) == "0001111");
  CHECK(cores_of(5, true) == "01010");
}

TEST_CASE("a message between ranks of one core has no latency") {
  for (const Sharing sharing : {Sharing::serial, Sharing::max_min}) {
    // Four steps of 1.1 us; the link's 0.2 us are shorter. Two ranks on each core: one of the three hops is between
    // cores.
    CHECK(run(chain(4, 1), line(4, 1), {200, 4}, options(sharing)).time == 5 * kMicrosecond + 4 * 1'100'000);
    CHECK(run(chain(4, 1), line(4, 2), {200, 4}, options(sharing)).time == 7 * kMicrosecond + 4 * 1'100'000);
  }
}

TEST_CASE("ranks of one core copy their buffers one after the other before they run") {
  const Call call{200, 4, {}, {}, {2000, 4000, 0, 6000}};
  // 1, 2, 0 and 3 us. Rank 0 begins with its core's copies, rank 2 with those of the other one.
  const Time each = 1'100'000;
  CHECK(run(chain(4, 1), line(4), call, options()).time == (5 + 3 * 2 + 1) * kMicrosecond + 4 * each);
  CHECK(run(chain(4, 1), line(4, 2), call, options()).time == (5 + 3 + 2) * kMicrosecond + 4 * each);
  CHECK(run(chain(4, 1), line(4, 1), call, options()).time == (5 + 6) * kMicrosecond + 4 * each);
  const ir::Program program = chain(4, 1);
  const Machine machine = line(4);
  CHECK_FALSE(Simulator::create(program, machine).value().run({200, 4, {}, {}, {1}}, options()).ok());
}

TEST_CASE("slots count as far as data goes through them") {
  const ir::Program program = chain(3, 3);
  const Machine machine = line(3);
  const Simulator simulator = std::move(Simulator::create(program, machine).value());
  ProtocolTiming protocol = options().protocol;
  CHECK(simulator.slot_bytes({1000, 4}, protocol) == 2 * 3000);
  CHECK(simulator.slot_bytes({100'000, 4}, protocol) == 2 * 8000);
  protocol.lend_bytes = 1000;  // what the last rank only stores
  CHECK(simulator.slot_bytes({1000, 4}, protocol) == 3000);
  protocol.lend_combined_bytes = 500;
  CHECK(simulator.slot_bytes({1000, 4}, protocol) == 0);
  CHECK(simulator.slot_bytes({0, 4}, protocol) == 0);
}

TEST_CASE("a lent message is not copied by its sender, but read by its receiver") {
  Options o = options();
  o.protocol.lend_bytes = o.protocol.lend_combined_bytes = 1000;
  o.protocol.lend_bytes_per_s = 4e9;
  // Reading 2000 bytes takes 0.5 us in addition to the 1 us of a step; links take 2 us and 2 us of latency.
  CHECK(run(chain(3, 1), line(3), {2000, 4}, o).time == 5 * kMicrosecond + 2 * 4 * kMicrosecond + 1'500'000);
  CHECK(run(chain(3, 1), line(3), {900, 4}, o).time == run(chain(3, 1), line(3), {900, 4}, options()).time);
  // What is reduced or sent on has a limit of its own: rank 1 reads its message in a slot, where rank 0 has copied it.
  o.protocol.lend_combined_bytes = 0;
  CHECK(run(chain(3, 1), line(3), {2000, 4}, o).time == 5 * kMicrosecond + 2 * 4 * kMicrosecond + 1'500'000);
  CHECK(run(chain(2, 1), line(2), {2000, 4}, o).time == 5 * kMicrosecond + 4 * kMicrosecond + 1'500'000);
  o.protocol.lend_combined_bytes = 1000;
  // A sum that is only sent on has no buffer: it is copied, in 1 us, and stored from there.
  ir::Program adding = chain(3, 1);
  adding.instructions[1].opcode = Opcode::recv_reduce_send;
  CHECK(run(adding, line(3), {2000, 4}, o).time == (5 + 4 + 2 + 2) * kMicrosecond + 2'500'000);
  o.protocol.lend_bytes_per_s = 0;
  const ir::Program program = chain(2, 1);
  const Machine machine = line(2);
  CHECK_FALSE(Simulator::create(program, machine).value().run({2000, 4}, o).ok());
}

TEST_CASE("a message that is sent by rendezvous waits for its receiver and for two further messages") {
  for (const Sharing sharing : {Sharing::serial, Sharing::max_min}) {
    Options o = options(sharing);
    o.protocol.rendezvous_bytes = 1000;
    // Both begin at 5 us. The question and the answer take 2 us each, and both ends 1 us more for each of them; then as
    // without: 2 us, 2 us of latency, 2 us.
    CHECK(run(chain(2, 1), line(2), {2000, 4}, options(sharing)).time == 11 * kMicrosecond);
    const Outcome early = run(chain(2, 1), line(2), {2000, 4}, o);
    CHECK(early.time == (5 + 4 + 4 + 2 + 4) * kMicrosecond);
    const Explanation why = explain(early);
    CHECK(why.on_path[static_cast<int>(Cause::receiver)] == 4 * kMicrosecond);
    CHECK(sum(why.on_path) == early.time);
    CHECK(run(chain(2, 1), line(2), {900, 4}, o).time == run(chain(2, 1), line(2), {900, 4}, options(sharing)).time);
    o.start.delay_s = {0, 10e-6};  // the receiver is there at 15 us
    CHECK(run(chain(2, 1), line(2), {2000, 4}, o).time == (15 + 2 + 4 + 2 + 4) * kMicrosecond);
    // The second message also waits until its receive is reached.
    o.start.delay_s = {};
    CHECK(run(chain(2, 2), line(2), {2000, 4}, o).time == (19 + 2 + 4 + 2 + 4) * kMicrosecond);
  }
}

TEST_CASE("ranks that send to each other before they receive deadlock by rendezvous only") {
  ir::Builder b;
  for (std::uint32_t r = 0; r < 2; ++r) {
    b.rank(kChunks);
    b.threadblock(1 - r, 1 - r, 0);
    b.step(step(Opcode::send));
    b.step(step(Opcode::recv));
  }
  const ir::Program program = built(b);
  const Machine machine = line(2);
  Options o = options();
  o.protocol.rendezvous_bytes = 1000;
  CHECK(Simulator::create(program, machine).value().run({900, 4}, o).ok());
  const auto stuck = Simulator::create(program, machine).value().run({1000, 4}, o);
  REQUIRE_FALSE(stuck.ok());
  CHECK(stuck.error().code == ErrorCode::SimulatedDeadlock);
  CHECK(stuck.error().str().find("waits for the receive of rank 1") != std::string::npos);
}

TEST_CASE("an empty call takes a launch; too many operations to record are an error") {
  CHECK(run(chain(2, 1), line(2), {0, 4}, options()).time == 5 * kMicrosecond);
  Options o = options();
  o.max_records = 3;
  const ir::Program program = chain(2, 4);
  const Machine machine = line(2);
  const auto outcome = Simulator::create(program, machine).value().run({4000, 4}, o);
  REQUIRE_FALSE(outcome.ok());
  CHECK(outcome.error().code == ErrorCode::TooManyRecords);
}

}  // namespace gc3::sim
