#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "gc3/sim/direct/simulator.h"
#include "gc3/sim/explain.h"
#include "gc3/sim/test_machines.h"

namespace gc3::sim::direct {
namespace {

ir::direct::Program parsed(const std::string& body, const std::string& objects = "") {
  return std::move(
      ir::direct::parse_text("direct \"p\" version 1\ncollective allreduce ranks 2 chunks 4 in place\nhalves 1\n" +
                             objects + "\n" + body)
          .value());
}

// A multiprocessor moves 100 GB/s; a step takes 1 us, a load from the own memory 2 us, a release 3 us.
Options one_sided(std::uint64_t in_flight = 1000000) {
  Options o;
  o.timing = {1e-6, 1e11, in_flight, 2e-6, 3e-6, 7e-6, 0};
  o.start.launch_s = 5e-6;
  o.record = true;
  return o;
}

double us(const ir::direct::Program& program, std::uint64_t chunk_bytes, const Options& options,
          const Machine& machine = line(2)) {  // 1 GB/s, 2 us
  const Simulator simulator = std::move(Simulator::create(program, machine).value());
  const Outcome outcome = std::move(simulator.run(chunk_bytes, options).value());
  const Explanation why = explain(outcome);
  Time sum = 0;
  for (const Time t : why.on_path) sum += t;
  CHECK(sum == outcome.time);
  return seconds(outcome.time) * 1e6;
}

const std::string kIdle = "rank 1\n  tb 0\n    0 sync\n";

}  // namespace

TEST_CASE("a load takes twice the latency, and the time of the link") {
  // 5 us launch, 1 us step, 4 us of latency, 8 us for 8000 bytes
  CHECK(us(parsed("rank 0\n  tb 0\n    0 move 1:in[0] -> in[0]\n" + kIdle), 8000, one_sided()) == doctest::Approx(18));
  // With 1024 bytes in flight, in 4 pieces of 0.256 us on the link, there are 8 rounds of loads.
  CHECK(us(parsed("rank 0\n  tb 0\n    0 move 1:in[0] -> in[0]\n" + kIdle), 8192, one_sided(1024)) ==
        doctest::Approx(6 + 8 * (4 + 0.256) + 3 * 0.256));
}

TEST_CASE("all sources of a sum are loaded in one pass") {
  const std::string two = "rank 0\n  tb 0\n    0 move in[0] + 1:in[0] + 1:in[1] -> in[0]\n" + kIdle;
  CHECK(us(parsed(two), 8000, one_sided()) == doctest::Approx(5 + 1 + 4 + 16));
  const std::string one = "rank 0\n  tb 0\n    0 move in[0] + 1:in[0] -> in[0]\n    1 move in[0] + 1:in[1] -> in[0]\n";
  CHECK(us(parsed(one + kIdle), 8000, one_sided()) == doctest::Approx(5 + 2 * (1 + 4 + 8)));
}

TEST_CASE("only a release waits until stores have arrived") {
  const std::string channel = "channel 0 from 0 to 1\n";
  const auto program = [&](const std::string& relaxed) {
    return parsed("rank 0\n  tb 0\n    0 move in[0] -> 1:in[0]\n    1 signal 0" + relaxed +
                      "\nrank 1\n  tb 0\n    0 wait 0" + relaxed + "\n",
                  channel);
  };
  // Launch, step, load of the own data, 8 us on the link; then a step, the signal's way, a load of the counter, a step.
  CHECK(us(program(" relaxed"), 8000, one_sided()) == doctest::Approx(5 + 1 + 2 + 8 + 1 + 2 + 2 + 1));
  // The stores are known to have arrived 4 us after they left, the release takes 3 us.
  CHECK(us(program(""), 8000, one_sided()) == doctest::Approx(5 + 1 + 2 + 8 + 4 + 3 + 2 + 2 + 1));
}

TEST_CASE("packets need no signal and take twice the bytes") {
  const auto program = parsed(
      "rank 0\n  tb 0\n    0 move in[0] -> 1:pkt sc[0]\nrank 1 scratch 2\n  tb 0\n    0 move pkt sc[0] -> in[0]\n");
  // 16 us on the link from 5 + 1 + 2 on, and 2 us after it the last packet is there.
  CHECK(us(program, 8000, one_sided()) == doctest::Approx(5 + 1 + 2 + 16 + 2));
}

TEST_CASE("threadblocks share a multiprocessor, semaphores and barriers take a local round") {
  const std::string text = "rank 0\n  tb 0\n    0 move in[0] -> in[1]\n  tb 1\n    0 move in[2] -> in[3]\n" + kIdle;
  Options o = one_sided();
  o.timing.bytes_per_s = 1e9;
  CHECK(us(parsed(text), 8000, o) == doctest::Approx(5 + 1 + 8 + 16));
  o.timing.processors = 1;
  CHECK(us(parsed(text), 8000, o) == doctest::Approx(5 + 1 + 2 * (8 + 16)));
  const auto meets = parsed("rank 0\n  tb 0\n    0 barrier 0\n  tb 1\n    0 sync\n    1 barrier 0\n" + kIdle,
                            "barrier 0 rank 0 threadblocks 2\n");
  CHECK(us(meets, 8000, one_sided()) == doctest::Approx(5 + 1 + 2 + 1));
  const auto releases =
      parsed("rank 0\n  tb 0\n    0 acquire 0\n  tb 1\n    0 release 0\n" + kIdle, "semaphore 0 rank 0 initial 0\n");
  CHECK(us(releases, 8000, one_sided()) == doctest::Approx(5 + 1 + 2 + 1));
}

TEST_CASE("a proxy moves data, and its signals come after it") {
  const auto program = parsed(
      "rank 0\n  tb 0\n    0 move in[0] -> 1:in[0] through 0\n    1 signal 0\n    2 flush 0\n"
      "rank 1\n  tb 0\n    0 wait 0\n",
      "channel 0 from 0 to 1 port\n");
  // Told at 6 us, moved from 13 to 21; told of the signal at 10, which leaves at 28, arrives 2 us later and is loaded.
  CHECK(us(program, 8000, one_sided()) == doctest::Approx(5 + 1 + 7 + 8 + 7 + 2 + 2 + 1));
}

TEST_CASE("a sum in the switch takes the way of each rank once") {
  MachineData data = line(2).data();
  data.classes[0].in_switch = 0.5;
  data.links.clear();
  data.resources.assign(4, {1e9, 0});
  data.fabrics = {{0, false, {{0, {0}, {1}}, {1, {2}, {3}}}}};
  const Machine machine = std::move(Machine::create(std::move(data)).value());
  const std::string text = "rank 0\n  tb 0\n    0 move g0:in[0] -> g0:in[0]\n" + kIdle;
  const auto program = parsed(text, "group 0 ranks 0 1\n");
  // Both ranks send what is added up at half of the rate; the sum goes the other way.
  CHECK(us(program, 8000, one_sided(), machine) == doctest::Approx(5 + 1 + 16 + 4 + 16));
}

TEST_CASE("what cannot be simulated is refused") {
  const auto waits = parsed("rank 0\n  tb 0\n    0 wait 0\n" + kIdle, "channel 0 from 1 to 0\n");
  const Machine machine = line(2);
  const Simulator simulator = std::move(Simulator::create(waits, machine).value());
  const Diagnostic problem = simulator.run(8, one_sided()).error();
  CHECK(problem.message == "threadblocks wait forever");
  MachineData data = machine.data();
  data.node_of = {0, 1};
  data.links.clear();
  data.fabrics = {{0, true, {{0, {0}, {1}}, {1, {1}, {0}}}}};
  const Machine nodes = std::move(Machine::create(std::move(data)).value());
  CHECK(Simulator::create(waits, nodes).error().message.find("of its own node or memory domain") != std::string::npos);
  const auto group = parsed("rank 0\n  tb 0\n    0 move g0:in[0] -> g0:in[0]\n" + kIdle, "group 0 ranks 0 1\n");
  CHECK(Simulator::create(group, machine).error().message.starts_with("no switch joins ranks 0 and 1"));
}

}  // namespace gc3::sim::direct
