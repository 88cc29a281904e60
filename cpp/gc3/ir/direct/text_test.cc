#include <doctest/doctest.h>

#include "gc3/base/errors/files.h"
#include "gc3/ir/direct/program.h"
#include "gc3/ir/test_programs.h"

namespace gc3::ir::direct {
namespace {

using testing::Random;

// The example of program.h, with all that makes it a whole program.
constexpr std::string_view kExample = R"(direct "one shot" version 1
collective allreduce ranks 2 chunks 2 in place
halves 2 shared scratch
channel 0 from 0 to 1
channel 1 from 1 to 0
channel 2 from 0 to 1 port
semaphore 0 rank 0 initial 1
barrier 0 rank 1 threadblocks 2
group 0 ranks 0 1

rank 0 scratch 4
  tb 0
    0 signal 0 relaxed
    1 wait 1 relaxed
    2 sync
    3 move in[0] + 1:in[0] -> out[0] 1:out[0] x2
    4 move in[0] -> 1:pkt sc[2]
    5 move g0:in[0] -> g0:in[0]
    6 move in[0] -> 1:out[0] through 2
    7 flush 2
    8 release 0
  tb 1

rank 1 scratch 4
  tb 0
    0 barrier 0
    1 move pkt sc[2] x2
    2 move pkt sc[2] -> g0:pkt sc[0] 0:in[1]
)";

Operand random_operand(Random& random, std::uint32_t ranks, std::uint32_t groups) {
  Operand o;
  o.access = static_cast<Access>(random.below(4));
  o.buffer = static_cast<model::Buffer>(random.below(3));
  o.owner = random.below(is_multicast(o.access) ? groups : ranks);
  o.chunk = random.below(100);
  return o;
}

Step random_step(Random& random, Program& p) {
  Step s;
  s.op = static_cast<Op>(random.below(kOps.size()));
  s.sources = 1 + random.below(3);
  if (s.op == Op::move) {
    s.targets = random.below(4);
    s.first = static_cast<std::uint32_t>(p.operands.size());
    s.count = random.below(4);
    if (random.below(3) == 0) s.channel = random.below(9);
    for (std::uint32_t k = 0; k < s.sources + s.targets; ++k) p.operands.push_back(random_operand(random, 5, 3));
    return s;
  }
  if (info(s.op).objects == Objects::none) s.sources = 0;
  s.first = static_cast<std::uint32_t>(p.objects.size());
  s.relaxed = s.sources != 0 && random.below(2) == 0;
  for (std::uint32_t k = 0; k < s.sources; ++k) p.objects.push_back(random.below(9));
  return s;
}

// It has the layout that program.h describes, and computes nothing sensible.
Program random_direct(std::uint64_t seed) {
  const ir::Program other = testing::random_program(seed);
  Random random(seed);
  Program p;
  p.name = other.name;
  p.collective = other.collective;
  p.halves = 1 + random.below(2);
  p.shared_scratch = random.below(2) == 0;
  for (std::uint32_t k = random.below(4); k > 0; --k) {
    p.channels.push_back({random.below(5), random.below(5), random.below(2) == 0});
    p.semaphores.push_back({random.below(5), random.below(3)});
    p.barriers.push_back({random.below(5), random.below(3)});
    p.groups.push_back({{random.below(2), 2 + random.below(3)}});
  }
  for (std::uint32_t r = 0; r < p.collective.ranks(); ++r) {
    p.ranks.push_back({static_cast<std::uint32_t>(p.threadblocks.size()), random.below(4), random.below(3)});
    for (std::uint32_t t = 0; t < p.ranks.back().tb_count; ++t) {
      p.threadblocks.push_back({static_cast<std::uint32_t>(p.steps.size()), random.below(6)});
      for (std::uint32_t s = 0; s < p.threadblocks.back().step_count; ++s) p.steps.push_back(random_step(random, p));
    }
  }
  return p;
}

TEST_CASE("direct text: golden form") {
  const Program p = parse_text(kExample).value();
  CHECK(to_text(p) == kExample);
  CHECK(to_text(p, 0, p.steps[3]) == "move in[0] + 1:in[0] -> out[0] 1:out[0] x2");
  CHECK(to_text(p, 1, p.steps[3]) == "move 0:in[0] + in[0] -> 0:out[0] out[0] x2");
  Findings findings(9);
  CHECK(check_structure(p, findings));
  CHECK(p.halves == 2);
  CHECK(p.operands[4] == Operand{.owner = 0});
  CHECK(p.operands[5] == Operand{1, 2, model::Buffer::scratch, Access::packet});
}

TEST_CASE("direct text: parsing what was printed gives the same program") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Program p = random_direct(seed);
    const auto back = parse_text(to_text(p));
    REQUIRE_MESSAGE(back.ok(), back.error().str());
    CHECK(back.value() == p);
  }
}

TEST_CASE("direct text: errors name the line and what was expected") {
  const auto flaw = [](std::string_view from, std::string_view to) {
    std::string text(kExample);
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    const auto result = parse_text(text.replace(at, from.size(), to), "p.txt");
    if (result.ok()) return std::string("accepted");
    CHECK(result.error().code == ErrorCode::BadText);
    CHECK(result.error().where.file == "p.txt");
    return std::to_string(result.error().where.line) + ": " + result.error().message;
  };
  CHECK(flaw("direct", "program") == "1: expected 'direct', found 'program'");
  CHECK(flaw("ranks 2", "ranks 3") == "28: the collective has 3 ranks, the text describes 2");
  CHECK(flaw("halves", "half") == "3: expected 'halves', found 'half'");
  CHECK(flaw("shared scratch", "shared") == "3: expected 'scratch', found the end of the line");
  CHECK(flaw("channel 1", "channel 2") == "5: expected channel 1, found '2'");
  CHECK(flaw("from 1 to 0", "from 1") == "5: expected 'to', found the end of the line");
  CHECK(flaw("channel 2", "wire 2") ==
        "6: expected 'channel', 'semaphore', 'barrier', 'group' or 'rank', found 'wire'");
  CHECK(flaw("initial 1", "") == "7: expected 'initial', found the end of the line");
  CHECK(flaw("threadblocks 2", "threadblocks -2") == "8: expected a number of threadblocks, found '-2'");
  CHECK(flaw("ranks 0 1", "ranks 0,1") == "9: expected a rank, found ',1'");
  CHECK(flaw("rank 0 scratch 4\n", "") == "11: a threadblock before the first rank");
  CHECK(flaw("  tb 0\n    0 signal", "    0 signal") == "12: expected 'tb' or 'rank', found '0'");
  CHECK(flaw("0 signal", "1 signal") == "13: expected step 0, found '1'");
  CHECK(flaw("0 signal", "0 send") == "13: expected an operation, found 'send'");
  CHECK(flaw("signal 0", "signal") == "13: expected the number of a channel, found 'relaxed'");
  CHECK(flaw("0 relaxed", "0 relaxed 1") == "13: expected the end of the line, found '1'");
  CHECK(flaw("2 sync", "2 sync 1") == "15: expected the end of the line, found '1'");
  CHECK(flaw("move in[0] + 1", "move + 1") == "16: expected in[...], out[...] or sc[...], found '+'");
  CHECK(flaw("-> out[0] 1", "out[0] 1") == "16: expected '->', found 'out[0]'");
  CHECK(flaw("-> out[0] 1:out[0] x2", "-> x2") == "16: expected in[...], out[...] or sc[...], found 'x2'");
  CHECK(flaw("x2", "xx") == "16: expected a count such as x2, found 'xx'");
  CHECK(flaw("1:pkt", "h:pkt") == "17: expected a rank or a group such as g0, found 'h:pkt'");
  CHECK(flaw("g0:in", "g4294967296:in") == "18: expected a rank or a group such as g0, found 'g4294967296:in[0]'");
  CHECK(flaw("through 2", "through 4294967295") == "19: expected the number of a channel, found '4294967295'");
  CHECK(flaw("release 0", "release") == "21: expected the number of a semaphore, found the end of the line");
}

TEST_CASE("direct text: random damage never crashes, and what is accepted prints and parses to itself") {
  Random random(3);
  constexpr std::string_view kPieces[] = {"0",  "4294967295", " ",    "\n",      "in[0]", "g0:", "1:pkt ",
                                          "->", "+",          ":",    "\"",      "sync",  "tb ", "rank ",
                                          "x3", "through",    "wait", "relaxed", "group"};
  std::vector<std::string> texts;
  for (std::uint64_t seed = 0; seed < 60; ++seed) texts.push_back(to_text(random_direct(seed)));
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = texts[random.below(60)];
    for (std::uint32_t edits = 1 + random.below(3); edits > 0 && !text.empty(); --edits) {
      const std::size_t at = random.below(text.size());
      switch (random.below(4)) {
        case 0:
          text.erase(at, 1 + random.below(8));
          break;
        case 1:
          text.insert(at, kPieces[random.below(std::size(kPieces))]);
          break;
        case 2:
          text[at] = static_cast<char>('0' + random.below(10));
          break;
        default:
          text.insert(at, text.substr(random.below(text.size()), random.below(40)));
          break;
      }
    }
    const auto result = parse_text(text);
    if (!result.ok()) continue;
    ++accepted;
    Findings findings(9);
    check_structure(result.value(), findings);
    const auto again = parse_text(to_text(result.value()));
    REQUIRE(again.ok());
    CHECK(again.value() == result.value());
  }
  CHECK(accepted > 50);
}

}  // namespace
}  // namespace gc3::ir::direct
