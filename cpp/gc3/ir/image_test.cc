#include "gc3/ir/image.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "gc3/base/errors/files.h"
#include "gc3/base/test_folder.h"
#include "gc3/ir/index.h"
#include "gc3/ir/test_programs.h"
#include "gc3/ir/test_seal.h"
#include "gc3/ir/text.h"

namespace gc3::ir {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;
using testing::kChecksumAt;
using testing::kHeaderBytes;
using testing::kSizeAt;
using testing::sealed;

// Offsets of the header that the tests damage on purpose.
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kRanksAt = 36;

template <class T>
void poke(Bytes& bytes, std::size_t at, T value) {
  REQUIRE(at + sizeof(T) <= bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

ErrorId code_of(const Bytes& bytes) {
  const auto result = read_image(bytes);
  REQUIRE_FALSE(result.ok());
  return result.error().code;
}

struct Folder : gc3::testing::Folder {
  fs::path operator/(const char* name) const { return path() / fs::path(name); }
  std::ptrdiff_t entries() const { return std::distance(fs::directory_iterator(path()), fs::directory_iterator()); }
};

TEST_CASE("image: reading what was written gives the same program and the same bytes") {
  CHECK(read_image(write_image(testing::two_ranks())).value() == testing::two_ranks());
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Program p = testing::random_program(seed);
    const Bytes bytes = write_image(p);
    const auto back = read_image(bytes);
    REQUIRE(back.ok());
    CHECK(back.value() == p);
    CHECK(write_image(back.value()) == bytes);
  }
}

TEST_CASE("image: each kind of damage has its code") {
  const Bytes good = write_image(testing::two_ranks());
  REQUIRE(sealed(good) == good);
  CHECK(code_of({}) == ErrorCode::NotAProgram);
  CHECK(code_of(Bytes(200, std::byte{'<'})) == ErrorCode::NotAProgram);
  Bytes other_version = good;
  poke(other_version, kVersionAt, kImageVersionOfClasses + 1);
  CHECK(code_of(other_version) == ErrorCode::BadVersion);
  for (std::size_t n = 1; n < good.size(); ++n) {
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n));
    CHECK(code_of(cut) == ErrorCode::CorruptProgram);
    if (n >= kHeaderBytes) CHECK(code_of(sealed(cut)) == ErrorCode::CorruptProgram);
  }
  Bytes longer = good;
  longer.push_back({});
  CHECK(code_of(longer) == ErrorCode::CorruptProgram);
  CHECK(code_of(sealed(longer)) == ErrorCode::CorruptProgram);
}

TEST_CASE("image: switch groups have a version of their own") {
  Program p = testing::two_ranks();
  p.switched.resize(p.instructions.size());
  p.switched[0].multicast = 7;
  p.switched[1].reduction = 0;
  const Bytes bytes = write_image(p);
  CHECK(bytes.size() == write_image(testing::two_ranks()).size() + 8 * p.instructions.size());
  REQUIRE(read_image(bytes).ok());
  CHECK(read_image(bytes).value() == p);
  CHECK_FALSE(p == testing::two_ranks());
  p.switched.assign(p.instructions.size(), {});  // no group: a program of version 1 that says otherwise
  CHECK(code_of(write_image(p)) == ErrorCode::CorruptProgram);
}

// The two-rank program with a helper that is called from two lines.
Program with_source() {
  Program p = testing::two_ranks();
  p.source.files = {"ring.py", "helper.py"};
  p.source.lines = {{0, 10, kNone}, {0, 20, kNone}, {1, 5, 0}, {1, 5, 1}};
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) p.source.line_of.push_back(i == 0 ? kNone : i % 4);
  return p;
}

TEST_CASE("image: source lines travel, and do not make programs different") {
  const Program p = with_source();
  const Bytes bytes = write_image(p);
  const auto back = read_image(bytes);
  REQUIRE(back.ok());
  CHECK(back.value().source == p.source);
  CHECK(write_image(back.value()) == bytes);
  CHECK(p == testing::two_ranks());
  // Without lines it is the image of version 1, as it always was.
  CHECK(write_image(p, false) == write_image(testing::two_ranks()));
  CHECK_FALSE(read_image(write_image(p, false)).value().source.known());
  CHECK(in_brackets("rrc", p.source, 1) == " (rrc, ring.py:20)");
  CHECK(in_brackets("rrc", p.source, 0) == " (rrc)");
  CHECK(in_brackets("rrc", {}, 0) == " (rrc)");
  CHECK(ProgramIndex(p).describe({0, 1}).ends_with(", ring.py:20)"));
}

TEST_CASE("image: a hostile table of source lines") {
  const Bytes good = write_image(with_source());
  const std::size_t table = write_image(testing::two_ranks()).size();
  const auto damaged = [&](std::size_t at, std::uint32_t value) {
    Bytes bad = good;
    poke(bad, at, value);
    return code_of(sealed(bad)) == ErrorCode::CorruptProgram;
  };
  const std::size_t names = table + 8 + 2 * 4;
  const std::size_t lines = names + 7 + 9;
  for (const std::uint32_t value : {0U, 1U, 3U, 0x7fffffffU, 0xffffffffU}) {
    CHECK(damaged(table, value));          // files
    CHECK(damaged(table + 4, value + 6));  // lines
    CHECK(damaged(table + 8, value));      // length of a name
    CHECK(damaged(12, value));             // size of the table
  }
  CHECK(damaged(names, 0xffffffffU));     // no UTF-8
  CHECK(damaged(lines, 2));               // no such file
  CHECK(damaged(lines + 8, 0));           // a line that calls itself
  CHECK(damaged(lines + 2 * 12 + 8, 3));  // a caller that comes later
  CHECK(damaged(lines + 4 * 12, 4));      // no such line
  Bytes first_version = good;
  poke(first_version, kVersionAt, kImageVersion);
  CHECK(code_of(sealed(first_version)) == ErrorCode::CorruptProgram);
  Bytes none = write_image(testing::two_ranks());
  poke(none, kVersionAt, kImageVersionWithSource);
  CHECK(code_of(sealed(none)) == ErrorCode::CorruptProgram);
}

TEST_CASE("image: every flipped bit is noticed") {
  for (const Program& p : {testing::random_program(7), with_source()}) {
    const Bytes good = write_image(p);
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      Bytes bad = good;
      bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      CHECK_FALSE(read_image(bad).ok());
    }
  }
}

TEST_CASE("image: bad enums, flags, unused operands and counts, with a correct checksum") {
  const Bytes good = write_image(testing::two_ranks());
  const std::size_t first_rank = kHeaderBytes + 4;  // after the name "ring"
  const std::size_t first_tb = first_rank + 2 * 8;
  const std::size_t first_step = first_tb + 4 * 16;
  const auto damaged = [&](std::size_t at, auto value) {
    Bytes bad = good;
    poke(bad, at, value);
    const auto result = read_image(sealed(bad));
    return result.ok() ? std::string() : result.error().message;
  };
  CHECK(damaged(first_step, std::uint8_t{kOpcodeCount}) == "instruction 0 has unknown opcode");
  CHECK(damaged(first_step + 1, std::uint8_t{3}) == "instruction 0 has unknown buffer");
  CHECK(damaged(first_step + 3, std::uint8_t{2}) == "instruction 0 has a flag is neither 0 nor 1");
  CHECK(damaged(first_step + 8, 7U) == "instruction 0 has a destination that its opcode does not use");
  CHECK(damaged(first_step + 20 + 4, 7U) == "instruction 1 has a source that its opcode does not use");
  CHECK(damaged(first_step + 16, 1U) == "the instructions do not cover the dependencies");
  CHECK(damaged(first_step + 16, 0xffffffffU) == "the instructions do not cover the dependencies");
  CHECK(damaged(first_tb + 12, 3U) == "the threadblocks do not cover the instructions");
  CHECK(damaged(first_rank, 0xffffffffU) == "the ranks do not cover the threadblocks");
  CHECK(damaged(first_rank + 4, 0xffffffffU) == "more scratch chunks than a program may have");
  CHECK(damaged(kHeaderBytes, std::uint8_t{0xff}) == "its name is not UTF-8");
  CHECK(damaged(72, std::uint8_t{10}) == "unknown collective 10");
  CHECK(damaged(72, std::uint8_t{9}) == "the kind of the collective and its custom data do not match");
  CHECK(damaged(73, std::uint8_t{5}) == "unknown protocol 5");
  CHECK(damaged(74, std::uint8_t{2}) == "a flag is neither 0 nor 1");
  CHECK(damaged(75, std::uint8_t{1}) == "a reserved field is in use");
  CHECK(damaged(68, 0U) == "the chunks are not a multiple of the split");
  CHECK(damaged(64, 2U) == "its collective is invalid: root 2 of 2 ranks");
}

TEST_CASE("image: huge counts cost no memory") {
  const Bytes good = write_image(testing::two_ranks());
  for (std::size_t at = 32; at < kHeaderBytes; at += 4) {
    for (const std::uint32_t value : {0xffffffffU, 0x7fffffffU, 1U << 22U, 0U}) {
      Bytes bad = good;
      poke(bad, at, value);
      testing::reset_largest_allocation();
      const auto result = read_image(sealed(std::move(bad)));
      // A collective of the largest size that is allowed needs 16 bytes per chunk of a buffer.
      CHECK(testing::largest_allocation() <= std::size_t{model::kMaxBufferChunks} * 16);
      if (at == kRanksAt) CHECK_FALSE(result.ok());
    }
  }
}

// One to three random edits.
Bytes edited(Bytes bytes, testing::Random& random) {
  for (std::uint32_t edits = 1 + random.below(3); edits > 0; --edits) {
    const std::size_t at = random.below(bytes.size());
    switch (random.below(4)) {
      case 0:
        bytes[at] ^= static_cast<std::byte>(1U << random.below(8));
        break;
      case 1:
        bytes[at] = static_cast<std::byte>(random.below(2) == 0 ? 0xff : random.below(16));
        break;
      case 2:
        bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      default:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), std::byte{0});
        break;
    }
  }
  return sealed(std::move(bytes));
}

// Whether it is accepted; then it is exact.
bool accepted(const Bytes& bytes) {
  const auto result = read_image(bytes);
  if (!result.ok()) return false;
  CHECK(write_image(result.value()) == bytes);
  const auto text = parse_text(to_text(result.value()));
  REQUIRE(text.ok());
  CHECK(text.value() == result.value());
  return true;
}

TEST_CASE("image: random damage with a correct checksum never crashes, and accepted files are exact") {
  testing::Random random(1);
  int good = 0;
  for (int round = 0; round < 20000; ++round) {
    good += accepted(edited(write_image(testing::random_program(random.below(40))), random)) ? 1 : 0;
  }
  CHECK(good > 1000);
}

TEST_CASE("image: so of a program that computes") {
  const auto program = parse_text(R"(program "norm" version 1
collective custom "add_norm" ranks 2 chunks 1
  tensor "x" in length 0 chunks 1 1
  tensor "y" out length 1 chunks 1 0
  operation "norm"
  operation "other"
  call 0 "norm" 0 of 0:0 + 1:0
  call 1 "norm" 1 of =0, 0:0
  rank 0 in 1 out 1
    out[0] = =0 + =1
  rank 1 in 1 out 0
protocol Simple instances 1 slots 1
lengths "x" "y" "second"

rank 0 scratch 2
  tb 0 channel 0 recv 1
    0 rrc in[0] -> sc[0]
    1 apply "norm" sc[0] -> out[0]:1 signals
  tb 1 channel 0
    0 apply "norm" out[0] in[0] -> sc[1]:2 sc[0]:1 after (0:1)

rank 1
  tb 0 channel 0 send 0
    0 send in[0]
)");
  REQUIRE_MESSAGE(program.ok(), program.error().str());
  const Bytes image = write_image(program.value());
  CHECK(accepted(image));
  testing::Random random(2);
  int good = 0;
  for (int round = 0; round < 20000; ++round) good += accepted(edited(image, random)) ? 1 : 0;
  CHECK(good > 200);
}

TEST_CASE("image: save and load") {
  const Folder folder;
  const Program p = testing::random_program(3);
  const std::string path = folder / "a.gc3";
  REQUIRE(save(p, path).ok());
  REQUIRE(save(testing::two_ranks(), path).ok());
  CHECK(load(path).value() == testing::two_ranks());
  CHECK(folder.entries() == 1);
}

TEST_CASE("image: failures of files name the path and leave nothing behind") {
  const Folder folder;
  const std::string missing = folder / "none";
  const auto unread = load(missing);
  REQUIRE_FALSE(unread.ok());
  CHECK(unread.error().code == ErrorCode::FileUnreadable);
  CHECK(unread.error().message == "'" + missing + "': No such file or directory");
  const auto is_folder = load(folder / "");
  REQUIRE_FALSE(is_folder.ok());
  CHECK(is_folder.error().code == ErrorCode::FileUnreadable);

  const Status unwritten = save(testing::two_ranks(), folder / "none/a.gc3");
  REQUIRE_FALSE(unwritten.ok());
  CHECK(unwritten.error().code == ErrorCode::FileUnwritable);
  fs::create_directory(folder / "taken");
  CHECK_FALSE(save(testing::two_ranks(), folder / "taken").ok());
  CHECK(folder.entries() == 1);  // the folder itself: the temporary file is gone

  std::ofstream(folder / "x.xml") << "<algo>";
  const auto foreign = load(folder / "x.xml");
  REQUIRE_FALSE(foreign.ok());
  CHECK(foreign.error().code == ErrorCode::NotAProgram);
  const auto endless = load("/dev/zero");
  REQUIRE_FALSE(endless.ok());
  CHECK(endless.error().code == ErrorCode::FileUnreadable);
}

TEST_CASE("image: 2.4 million instructions") {
  Program p = testing::two_ranks();
  const std::uint32_t steps = 600'000;
  Builder b;
  for (std::uint32_t r = 0; r < 2; ++r) {
    b.rank(0);
    for (std::uint32_t t = 0; t < 2; ++t) {
      b.threadblock(1 - r, 1 - r, t);
      const std::vector<Dependency> deps = {{1 - t, 0}};
      for (std::uint32_t s = 0; s < steps; ++s) b.step({.opcode = Opcode::send, .src_chunk = s, .count = 1}, deps);
    }
  }
  Program& big = b.program();
  big.collective = p.collective;
  const Bytes bytes = write_image(big);
  const auto start = std::chrono::steady_clock::now();
  const auto back = read_image(bytes);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  MESSAGE("read in ", took.count(), " s");
  REQUIRE(back.ok());
  CHECK(back.value() == big);
}

}  // namespace
}  // namespace gc3::ir
