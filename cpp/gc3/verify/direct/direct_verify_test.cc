#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "gc3/base/errors/verifier.h"
#include "gc3/ir/direct/test_direct.h"
#include "gc3/verify/direct/verify.h"

namespace gc3::verify::direct {
namespace {

using namespace ir::direct::test;  // NOLINT(*-using-namespace*)
using ir::direct::Op;
using ir::direct::Program;

std::string text_of(const Report& report) {
  std::string text;
  for (const Diagnostic& d : report.diagnostics) text += d.str() + "\n";
  return text;
}

// That there is a finding of this code whose text, with its notes, contains `part`.
void check_refused(const Program& program, ErrorId code, const std::string& part) {
  const Report report = verify(program);
  REQUIRE_MESSAGE(!report.ok(), program.name);
  const std::string text = text_of(report);
  CHECK_MESSAGE(report.diagnostics[0].code == code, text);
  CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}

TEST_CASE("right programs are proven") {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 8U}) {
    for (const Program& program : all_programs(ranks)) {
      const Report report = verify(program);
      CHECK_MESSAGE(report.ok(), program.name << " on " << ranks << ": " << text_of(report));
    }
  }
}

// The steps of `op`, by number in the program.
std::vector<std::size_t> steps_with(const Program& p, Op op) {
  std::vector<std::size_t> found;
  for (std::size_t k = 0; k < p.steps.size(); ++k) {
    if (p.steps[k].op == op) found.push_back(k);
  }
  return found;
}

TEST_CASE("a flush does not end the order of what one thread tells a proxy") {
  const auto gather = [](std::uint32_t r) {
    const std::string out = "out[" + std::to_string(r) + "]";
    const auto [own, peer] = std::pair(std::to_string(r), std::to_string(1 - r));
    const std::string port = std::to_string(2 + r);
    return "\nrank " + own + "\n  tb 0\n    0 signal " + own + " relaxed\n    1 wait " + peer +
           " relaxed\n    2 sync\n" + "    3 move in[0] -> " + peer + ":" + out + " through " + port +
           "\n    4 sync\n    5 flush " + port + "\n    6 sync\n    7 signal " + port + "\n    8 wait " +
           std::to_string(3 - r) + "\n    9 move in[0] -> " + out + "\n    10 sync\n    11 signal " + own +
           "\n    12 wait " + peer + "\n";
  };
  const std::string text =
      "direct \"flush\" version 1\ncollective allgather ranks 2 chunks 1\nhalves 1\nchannel 0 from 0 to 1\n"
      "channel 1 from 1 to 0\nchannel 2 from 0 to 1 port\nchannel 3 from 1 to 0 port\n" +
      gather(0) + gather(1);
  const auto program = ir::direct::parse_text(text);
  REQUIRE_MESSAGE(program.ok(), program.error().str());
  CHECK(verify(program.value()).ok());
}

// Two threadblocks of each rank tell one proxy to move a chunk and to signal, the second one while the first one waits
// for it; the other rank waits for both signals.
std::string both_tell(bool in_order) {
  std::string text =
      "direct \"both\" version 1\ncollective allgather ranks 2 chunks 2\nhalves 1\nchannel 0 from 0 to 1\n"
      "channel 1 from 1 to 0\nchannel 2 from 0 to 1 port\nchannel 3 from 1 to 0 port\nsemaphore 0 rank 0 initial 0\n"
      "semaphore 1 rank 1 initial 0\nbarrier 0 rank 0 threadblocks 2\nbarrier 1 rank 1 threadblocks 2\n";
  for (std::uint32_t r = 0; r < 2; ++r) {
    const auto [own, peer] = std::pair(std::to_string(r), std::to_string(1 - r));
    const std::string port = std::to_string(2 + r);
    std::uint32_t number = 0;
    const auto step = [&](const std::string& what) { text += "    " + std::to_string(number++) + " " + what + "\n"; };
    const auto tells = [&](std::uint32_t chunk, const std::string& between) {
      const std::string move = "move in[" + std::to_string(chunk) + "] -> " + peer + ":out[" +
                               std::to_string(2 * r + chunk) + "] through " + port;
      step(in_order ? move : "signal " + port);
      step("sync");
      step(between + " " + own);
      step("sync");
      step(in_order ? "signal " + port : move);
      step("flush " + port);
      step("sync");
    };
    text += "\nrank " + own + "\n  tb 0\n";
    step("signal " + own + " relaxed");
    step("wait " + peer + " relaxed");
    step("sync");
    step("barrier " + own);
    tells(0, "acquire");
    step("move in[0] -> out[" + std::to_string(2 * r) + "] x2");
    for (int both = 0; both < 2; ++both) step("wait " + std::to_string(3 - r));
    text += "  tb 1\n";
    number = 0;
    step("barrier " + own);
    tells(1, "release");
  }
  return text;
}

TEST_CASE("of two threadblocks that tell one proxy, each has its own order") {
  const auto program = ir::direct::parse_text(both_tell(true));
  REQUIRE_MESSAGE(program.ok(), program.error().str());
  const Report report = verify(program.value());
  CHECK_MESSAGE(report.ok(), text_of(report));
  check_refused(ir::direct::parse_text(both_tell(false)).value(), ErrorCode::DataRace, "asynchronous");
}

TEST_CASE("each part of a proof is needed") {
  SUBCASE("no exit: the caller reads what is still being stored") {
    Program p = put_all_to_all(2);
    for (const std::size_t k : steps_with(p, Op::signal)) p.steps[k].relaxed = true;
    check_refused(p, ErrorCode::DataRace, "the caller of rank");
    check_refused(p, ErrorCode::DataRace, "make nothing visible");
  }
  SUBCASE("no sync before the signal") {
    Program p = put_all_to_all(2);
    Program q = p;  // without the sync of rank 0 that precedes its last signal
    const std::size_t at = steps_with(p, Op::signal)[1] - 1;
    REQUIRE(q.steps[at].op == Op::sync);
    q.steps.erase(q.steps.begin() + static_cast<std::ptrdiff_t>(at));
    --q.threadblocks[0].step_count;
    --q.threadblocks[1].first_step;
    check_refused(q, ErrorCode::DataRace, "no order between them is defined");
  }
  SUBCASE("packets in one copy of scratch") {
    Program p = packet_all_gather(2);
    p.halves = 1;
    check_refused(p, ErrorCode::DataRace, "packets[");
  }
  SUBCASE("an asynchronous move without flush or signal") {
    Program p = port_all_to_all(2);
    for (const std::size_t k : steps_with(p, Op::move)) p.steps[k].channel = kNone;
    CHECK(verify(p).ok());  // moved by the threads it is right without
    p = port_all_to_all(2);
    for (ir::direct::Channel& c : p.channels) c.port = true;
    CHECK(verify(p).ok());
    for (const std::size_t k : steps_with(p, Op::move)) {
      if (p.steps[k].channel != kNone) p.steps[k].channel -= 2;  // the meeting's channels
    }
    check_refused(p, ErrorCode::DataRace, "asynchronous");
  }
  SUBCASE("a proxy that copies packets before they have come") {
    Program p = port_packet_ring(3);
    Program q = p;
    for (ir::direct::Step& s : q.steps) {
      if (s.op == Op::move && s.targets == 0) q.operands[s.first].chunk = 0;  // that of rank 0, which is there
    }
    check_refused(q, ErrorCode::DataRace, "packets[");
    q = p;  // the last wait of rank 0 comes after the sync
    const std::size_t sync = steps_with(p, Op::sync)[1];
    REQUIRE(p.steps[sync - 1].targets == 0);
    std::swap(q.steps[sync], q.steps[sync - 1]);
    check_refused(q, ErrorCode::DataRace, "which does not wait for packets");
    q = p;
    q.halves = 1;
    check_refused(q, ErrorCode::DataRace, "packets[");
  }
  SUBCASE("a threadblock that passes work on too early") {
    Program p = passed_on(2);
    for (ir::direct::Semaphore& s : p.semaphores) s.initial *= 2;
    check_refused(p, ErrorCode::DataRace, "scratch[0]");
  }
  SUBCASE("what a call leaves in scratch is not its own") {
    Program p = passed_on(2);
    for (ir::direct::Operand& o : p.operands) o.access = ir::direct::Access::plain;
    p.shared_scratch = true;
    CHECK(verify(p).ok());
  }
  SUBCASE("signals left over") {
    Program p = one_shot(2);
    Program q = p;
    const std::size_t at = steps_with(p, Op::wait).back();
    q.steps[at] = {Op::sync, false, 0, q.steps[at].first, 0, 0, kNone};
    for (std::size_t k = at + 1; k < q.steps.size(); ++k) --q.steps[k].first;
    q.objects.pop_back();
    check_refused(q, ErrorCode::UnpairedSignals, "2 times in a call and waited for 1 time");
  }
  SUBCASE("waits in a circle") {
    Program p = one_shot(2);
    for (const std::size_t first : {steps_with(p, Op::signal)[0], steps_with(p, Op::signal)[2]}) {
      std::swap(p.steps[first].op, p.steps[first + 1].op);
      std::swap(p.objects[p.steps[first].first], p.objects[p.steps[first + 1].first]);
    }
    check_refused(p, ErrorCode::OrderDeadlock, "waits for a signal of channel");
  }
  SUBCASE("a wrong chunk") {
    Program p = two_shot(3);
    const std::size_t at = steps_with(p, Op::move)[0];
    p.operands[p.steps[at].first].chunk = 1;
    check_refused(p, ErrorCode::WrongResult, "output[0] holds");
  }
  SUBCASE("an input that is the caller's") {
    Program p = one_shot(2);
    p.operands[2].buffer = model::Buffer::input;
    check_refused(p, ErrorCode::InputOverwritten, "writes input[0] of rank 0");
  }
  SUBCASE("packets and plain data in one place") {
    Program p = packet_all_gather(2);
    p.operands[1].access = ir::direct::Access::plain;
    CHECK(!verify(p).ok());
  }
  SUBCASE("scratch that nothing has written") {
    Program p = passed_on(2);
    const std::size_t at = steps_with(p, Op::move).front();
    p.operands[p.steps[at].first].buffer = model::Buffer::output;
    p.operands[p.steps[at].first].chunk = 2;
    check_refused(p, ErrorCode::UninitializedRead, "output[2], which nothing has written");
  }
}

TEST_CASE("two steps are reported once, whatever calls and chunks show it") {
  Program p = put_all_to_all(2);
  for (const std::size_t k : steps_with(p, Op::signal)) p.steps[k].relaxed = true;
  std::set<std::string> pairs;
  for (const Diagnostic& d : verify(p, {.max_diagnostics = 100}).diagnostics) {
    const std::string text = d.str();
    std::string steps = text.substr(text.find(": rank") + 1);
    steps = steps.substr(steps.find(':') + 1, steps.find(" and no order") - steps.find(':'));
    for (std::size_t at = steps.find("call "); at != std::string::npos; at = steps.find("call ", at + 1)) {
      steps.erase(at + 5, 1);
    }
    CHECK_MESSAGE(pairs.insert(steps).second, text);
  }
  CHECK(pairs.size() > 1);
}

}  // namespace
}  // namespace gc3::verify::direct
