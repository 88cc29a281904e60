#include "gc3/ir/text.h"

#include <doctest/doctest.h>

#include "gc3/base/errors/files.h"
#include "gc3/ir/test_programs.h"

namespace gc3::ir {
namespace {

constexpr std::string_view kTwoRanks = R"(program "ring" version 1
collective allreduce ranks 2 chunks 2 in place
protocol Simple instances 1 slots 1

rank 0 scratch 1
  tb 0 channel 0 send 1 recv 1
    0 send out[0]
    1 recv -> sc[0] x2 signals
  tb 1 channel 0
    0 reduce sc[0] -> out[1] after (0:1)

rank 1 scratch 1
  tb 0 channel 0 send 0 recv 0
    0 send out[1]
    1 recv -> sc[0] x2 signals
  tb 1 channel 0
    0 reduce sc[0] -> out[1] after (0:1)
)";

// kTwoRanks with the first occurrence of `from` replaced.
std::string edit(std::string_view from, std::string_view to) {
  std::string text(kTwoRanks);
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// "line: message" of the error that `text` gives.
std::string flaw(const std::string& text) {
  const auto result = parse_text(text, "p.txt");
  if (result.ok()) return "accepted";
  CHECK(result.error().code == ErrorCode::BadText);
  CHECK(result.error().where.file == "p.txt");
  return std::to_string(result.error().where.line) + ": " + result.error().message;
}

TEST_CASE("text: golden form") {
  CHECK(to_text(testing::two_ranks()) == kTwoRanks);
  CHECK(parse_text(kTwoRanks).value() == testing::two_ranks());
}

TEST_CASE("text: one instruction") {
  Program p;
  p.dependencies = {{1, 4}, {2, 0}};
  Instruction i{.opcode = Opcode::recv_reduce_copy_send,
                .src_buffer = model::Buffer::input,
                .dst_buffer = model::Buffer::output,
                .src_chunk = 3,
                .dst_chunk = 3,
                .count = 2,
                .dep_count = 2};
  CHECK(to_text(p, i) == "rrcs in[3] -> out[3] x2 after (1:4, 2:0)");
  i = {.opcode = Opcode::nop, .dep_count = 1};
  CHECK(to_text(p, i) == "nop after (1:4)");
}

TEST_CASE("text: a custom collective") {
  model::CustomCollective data{"mine", {1, 1}, {2, 0}, {0 - 1, std::nullopt}, {0, 0, 2}, {{0, 0}, {1, 0}}};
  Builder b;
  b.rank(0);
  b.rank(0);
  Program& p = b.program();
  p.collective = model::Collective::custom(data, 2, 1, true).value();
  const std::string text = to_text(p);
  CHECK(text.find("collective custom \"mine\" ranks 2 chunks 1 in place\n"
                  "  rank 0 in 1 out 2 alias -1\n"
                  "    out[1] = 0:0 + 1:0\n"
                  "  rank 1 in 1 out 0\n"
                  "protocol Simple instances 1 slots 1\n") != std::string::npos);
  CHECK(parse_text(text).value() == p);
}

TEST_CASE("text: parsing what was printed gives the same program") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Program p = testing::random_program(seed);
    const auto back = parse_text(to_text(p));
    REQUIRE_MESSAGE(back.ok(), back.error().str());
    CHECK(back.value() == p);
  }
}

TEST_CASE("text: comments, blank lines and spacing do not matter") {
  const std::string loose = edit("    0 send out[0]", "\n# a remark\n0   send out [0]x1 # sends\r");
  CHECK(parse_text(loose).value() == testing::two_ranks());
}

TEST_CASE("text: errors name the line and what was expected") {
  CHECK(flaw("") == "0: expected 'program', found the end of the line");
  CHECK(flaw("<algo name=\"x\">") == "1: expected 'program', found '<algo'");
  CHECK(flaw(edit("version 1", "version 2")) == "1: expected '1', found '2'");
  CHECK(flaw(edit("\"ring\"", "\"ring")) == "1: expected a closing quote, found '\"ring'");
  CHECK(flaw(edit("\"ring\"", "\"\\n\"")).starts_with("1: expected only \\\", \\\\ and \\xHH as escapes"));
  CHECK(flaw(edit("\"ring\"", "\"\\xff\"")) == "1: expected a name in UTF-8, found '\"\\xff\"'");
  CHECK(flaw(edit("allreduce", "sum")) == "2: expected the name of a collective, found 'sum'");
  CHECK(flaw(edit("ranks 2", "ranks 0")).starts_with("2: invalid collective: "));
  CHECK(flaw(edit("ranks 2", "ranks 4294967296")) == "2: expected a number of ranks of 32 bits, found '4294967296'");
  CHECK(flaw(edit("ranks 2", "ranks 3")) == "17: the collective has 3 ranks, the text describes 2");
  CHECK(flaw(edit("chunks 2", "chunks 2 split 3")) == "2: the chunks are a multiple of the split");
  CHECK(flaw(edit("in place", "in-place")) == "2: expected 'place', found '-place'");
  CHECK(flaw(edit("Simple", "simple")) == "3: expected Simple, LL, LL128, Pull or Copy, found 'simple'");
  CHECK(flaw(edit("slots 1", "slots -1")) == "3: expected a number of slots, found '-1'");
  CHECK(flaw(edit("rank 0 scratch 1", "rank 1 scratch 1")) == "5: expected rank 0, found '1'");
  CHECK(flaw(edit("scratch 1", "scratch 4000000000")) == "5: more scratch chunks than a program may have");
  CHECK(flaw(edit("rank 0 scratch 1\n", "")) == "5: a threadblock before the first rank");
  CHECK(flaw(edit("  tb 0 channel 0 send 1 recv 1\n", "")) == "6: expected 'tb' or 'rank', found '0'");
  CHECK(flaw(edit("send 1 recv 1", "send x")) == "6: expected a rank, found 'x'");
  CHECK(flaw(edit("recv 1", "recv 1 now")) == "6: expected the end of the line, found 'now'");
  CHECK(flaw(edit("    0 send", "    1 send")) == "7: expected step 0, found '1'");
  CHECK(flaw(edit("    0 send", "    0 transmit")) == "7: expected an opcode, found 'transmit'");
  CHECK(flaw(edit("out[0]", "mem[0]")) == "7: expected in[...], out[...] or sc[...], found 'mem[0]'");
  CHECK(flaw(edit("out[0]", "out[0")) == "7: expected ']', found the end of the line");
  CHECK(flaw(edit("x2", "x")) == "8: expected a count such as x2, found 'x'");
  CHECK(flaw(edit("-> sc", "sc")) == "8: expected '->', found 'sc[0]'");
  CHECK(flaw(edit("(0:1)", "0:1")) == "10: expected '(', found '0:1'");
  CHECK(flaw(edit("(0:1)", "(0:1")) == "10: expected ')', found the end of the line");
  CHECK(flaw(edit("(0:1)", "(0:1,)")) == "10: expected a threadblock, found ')'");
}

TEST_CASE("text: errors of a custom collective") {
  const auto with = [](const std::string& lines) {
    return flaw("program \"c\" version 1\ncollective custom \"mine\" ranks 1 chunks 1\n" + lines +
                "protocol LL instances 1 slots 1\nrank 0\n");
  };
  CHECK(with("rank 0 in 1 out 1\nout[0] = 0:0\n") == "accepted");
  CHECK(with("rank 0 in 1 out 1\nout[0] = 0:0\nout[0] = 0:0\n").starts_with("5: expected chunks in order"));
  CHECK(with("rank 0 in 1 out 1\nout[1] = 0:0\n").starts_with("4: expected chunks in order"));
  CHECK(with("rank 0 in 1 out 1\nout[0] = 0:9\n").starts_with("2: invalid collective: "));
  CHECK(with("rank 0 in 1 out 4000000000\n") == "3: the collective has too many chunks");
  CHECK(with("") == "2: invalid collective: custom collective 'mine': sizes are needed for each of 1 ranks");
}

TEST_CASE("text: random damage never crashes, and what is accepted prints and parses to itself") {
  testing::Random random(2);
  constexpr std::string_view kPieces[] = {"0",   "9",   "4294967295", " ",     "\n", "in",           "sc[",
                                          "]",   "(",   ":",          ",",     "\"", "\\x4",         "rank ",
                                          "tb ", "-> ", "signals",    "after", "x3", "out[0] = 0:0", "-1"};
  int accepted = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string text = to_text(testing::random_program(random.below(60)));
    for (std::uint32_t edits = 1 + random.below(3); edits > 0 && !text.empty(); --edits) {
      const std::size_t at = random.below(text.size());
      switch (random.below(4)) {
        case 0:
          text[at] = static_cast<char>(random.below(256));
          break;
        case 1:
          text.erase(at, 1 + random.below(8));
          break;
        case 2:
          text.insert(at, kPieces[random.below(std::size(kPieces))]);
          break;
        default:
          text.insert(at, text.substr(random.below(text.size()), random.below(40)));
          break;
      }
    }
    testing::reset_largest_allocation();
    const auto result = parse_text(text);
    REQUIRE(testing::largest_allocation() <= std::size_t{model::kMaxTotalChunks} * 16);
    if (!result.ok()) continue;
    ++accepted;
    const auto again = parse_text(to_text(result.value()));
    REQUIRE(again.ok());
    CHECK(again.value() == result.value());
  }
  CHECK(accepted > 100);
}

}  // namespace
}  // namespace gc3::ir
