// Attacks: wrong programs by an author who knows how the tracer compares values, and finally also its random numbers.
#include "gc3/compiler/tracer.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "gc3/base/random.h"
#include "gc3/model/test_old_hash.h"

namespace gc3::compiler::test {
namespace {

using model::Collective;
using model::CollectiveKind;
using model::test::exchange;
using model::test::Form;
using model::test::Long;
using model::test::Numbers;
using model::test::old_form;
using model::test::old_hash;
using model::test::UInt128;
using model::test::vanishing_counts;

constexpr std::uint32_t kChunks = 32;  // of each of two ranks: 64 inputs to choose among
constexpr std::uint64_t kModulus = (std::uint64_t{1} << 61U) - 1;

Collective allreduce() { return Collective::builtin(CollectiveKind::allreduce, 2, kChunks, 0, false).value(); }

// A program written operation by operation; each operation has to succeed.
class Author {
 public:
  Author(Collective collective, Fingerprints fingerprints)
      : tracer_(Tracer::create(options(std::move(collective)), std::move(fingerprints)).value()) {}
  explicit Author(Collective collective) : tracer_(Tracer::create(options(std::move(collective))).value()) {}

  Ref chunk(std::uint32_t rank, BufferIndex buffer, std::uint32_t index) {
    return tracer_.chunk(rank, buffer, index, 1, false, {}).value();
  }
  void copy(const Ref& src, std::uint32_t rank, BufferIndex buffer, std::uint32_t index) {
    REQUIRE(tracer_.copy(src, rank, buffer, index, {}, {}).ok());
  }
  // Adds to rank 0's buffer at `index`: each input as often as `counts` says.
  void add(const Numbers& counts, BufferIndex buffer, std::uint32_t index, bool empty) {
    for (std::uint32_t k = 0; k < counts.size(); ++k) {
      for (std::int64_t n = 0; n < counts[k]; ++n) {
        const Ref src = chunk(k / kChunks, kInput, k % kChunks);
        if (empty) {
          copy(src, 0, buffer, index);
        } else {
          REQUIRE(tracer_.reduce(chunk(0, buffer, index), src, {}, {}).ok());
        }
        empty = false;
      }
    }
  }
  // Copies chunk 0 of one of rank 0's buffers to chunk 0 of another.
  void reduce(BufferIndex from, BufferIndex to) {
    REQUIRE(tracer_.reduce(chunk(0, to, 0), chunk(0, from, 0), {}, {}).ok());
  }
  void twice(std::uint32_t rank, BufferIndex buffer) {
    copy(chunk(rank, buffer, 0), rank, buffer, 1);
    REQUIRE(tracer_.reduce(chunk(rank, buffer, 0), chunk(rank, buffer, 1), {}, {}).ok());
  }
  // Empty: the postcondition is met.
  std::string unmet() {
    const std::vector<Diagnostic> problems = tracer_.check_postcondition(1);
    return problems.empty() ? "" : problems.front().str();
  }

 private:
  static TracerOptions options(Collective collective) {
    TracerOptions made;
    made.name = "forged";
    made.collective = std::move(collective);
    return made;
  }
  Tracer tracer_;
};

void write_allreduce(Author& author, const Numbers& surplus) {
  for (std::uint32_t i = 0; i < kChunks; ++i) {
    Numbers both(2 * kChunks);
    both[i] = both[kChunks + i] = 1;
    author.add(both, kOutput, i, true);
    if (i == 0) author.add(surplus, kOutput, 0, false);
    author.copy(author.chunk(0, kOutput, i), 1, kOutput, i);
  }
}

// Delivers the inputs with negative numbers where those with positive ones are required: the same number of terms.
void write_custom(Author& author, const Numbers& exchanged) {
  Numbers delivered;
  for (const std::int64_t n : exchanged) delivered.push_back(-n);
  author.add(delivered, kOutput, 0, true);
}

std::vector<std::uint64_t> random_words() {
  std::vector<std::uint64_t> words(std::size_t{4} * kChunks);
  REQUIRE(draw_random(words).ok());
  return words;
}

std::vector<Form> forms_of(const std::vector<std::uint64_t>& words) {
  std::vector<Form> forms(2, Form{{}, Long::of(kModulus)});
  for (std::size_t k = 0; k < words.size(); ++k) forms[k % 2].weights.push_back((words[k] & kModulus) % kModulus);
  return forms;
}

}  // namespace

TEST_CASE("counts that are 0 in some modulus") {
  const Collective one = Collective::builtin(CollectiveKind::broadcast, 1, 1, 0, false).value();
  for (const std::uint32_t times : {0, 1, 2, 31, 32, 33, 61, 62, 63, 64, 122, 127, 128, 256}) {
    for (const bool once_more : {false, true}) {
      Author author(one);
      author.copy(author.chunk(0, kInput, 0), 0, kScratch, 0);
      for (std::uint32_t n = 0; n < times; ++n) author.twice(0, kScratch);
      if (once_more) author.add({1}, kScratch, 0, false);
      author.copy(author.chunk(0, kScratch, 0), 0, kOutput, 0);
      CAPTURE(times);
      CAPTURE(once_more);
      CHECK(author.unmet().empty() == (times == 0 && !once_more));
      if (times == 128) CHECK(author.unmet().find("holds 2^62 or more x input[0] of rank 0") != std::string::npos);
    }
  }
}

TEST_CASE("a count that is 1 modulo the modulus, and 1 in 32 bits that wrap") {
  Author author(Collective::builtin(CollectiveKind::broadcast, 1, 1, 0, false).value());
  author.copy(author.chunk(0, kInput, 0), 0, kOutput, 0);
  author.copy(author.chunk(0, kInput, 0), 0, kScratch, 0);
  for (std::uint32_t n = 0; n < 32 + 61; ++n) {
    if (n >= 32) author.reduce(kScratch, kOutput);
    author.twice(0, kScratch);
  }
  CHECK(author.unmet().find("too much: ") != std::string::npos);
}

TEST_CASE("an AllReduce with a surplus that a lattice reduction has found") {
  const Numbers surplus = vanishing_counts(old_form(2, kChunks));
  REQUIRE_FALSE(surplus.empty());
  UInt128 sum = 0;
  for (std::uint32_t k = 0; k < surplus.size(); ++k) {
    sum += static_cast<UInt128>(surplus[k]) * old_hash(k / kChunks, k % kChunks);
  }
  CHECK(sum == 0);
  Author right(allreduce());
  write_allreduce(right, {});
  CHECK(right.unmet().empty());
  Author wrong(allreduce());
  write_allreduce(wrong, surplus);
  CHECK(wrong.unmet().find("output[0] of rank 0 must hold input[0] of rank 0 + input[0] of rank 1, but") !=
        std::string::npos);
}

TEST_CASE("the right number of terms, but the wrong ones") {
  const Numbers exchanged = exchange({old_form(2, kChunks)});
  REQUIRE_FALSE(exchanged.empty());
  Author author(model::test::demanding(exchanged).value());
  write_custom(author, exchanged);
  CHECK(author.unmet().find("missing: ") != std::string::npos);
}

TEST_CASE("a wrong program passes the tracer only if its author knows the random words") {
  const std::vector<std::uint64_t> words = random_words();
  const Numbers exchanged = exchange(forms_of(words));
  REQUIRE_FALSE(exchanged.empty());
  const Collective collective = model::test::demanding(exchanged).value();
  Author knowing(collective, Fingerprints(collective, words));
  write_custom(knowing, exchanged);
  CHECK(knowing.unmet().empty());
  for (int n = 0; n < 100; ++n) {
    Author author(collective);
    write_custom(author, exchanged);
    CHECK_FALSE(author.unmet().empty());
  }
}

TEST_CASE("one of the two forms alone is not enough") {
  const std::vector<std::uint64_t> words = random_words();
  for (const std::size_t form : {0, 1}) {
    const Numbers exchanged = exchange({forms_of(words)[form]});
    REQUIRE_FALSE(exchanged.empty());
    const Collective collective = model::test::demanding(exchanged).value();
    Author author(collective, Fingerprints(collective, words));
    write_custom(author, exchanged);
    CHECK_FALSE(author.unmet().empty());
  }
}

TEST_CASE("a wrong value of very many terms is reported at once, by their number") {
  constexpr std::uint32_t kHalf = 1U << 17U;
  TracerOptions options;
  options.collective = Collective::builtin(CollectiveKind::scatter, 1, 2 * kHalf, 0, false).value();
  Tracer tracer = Tracer::create(std::move(options)).value();
  const auto chunks = [&](BufferIndex buffer, std::uint32_t index, std::uint32_t count) {
    return tracer.chunk(0, buffer, index, count, false, {}).value();
  };
  REQUIRE(tracer.copy(chunks(kInput, 0, 2 * kHalf), 0, kOutput, 0, {}, {}).ok());
  REQUIRE(tracer.copy(chunks(kInput, 0, kHalf), 0, kScratch, 0, {}, {}).ok());
  REQUIRE(tracer.reduce(chunks(kScratch, 0, kHalf), chunks(kInput, kHalf, kHalf), {}, {}).ok());
  for (std::uint32_t n = kHalf / 2; n > 0; n /= 2) {
    REQUIRE(tracer.reduce(chunks(kScratch, 0, n), chunks(kScratch, n, n), {}, {}).ok());
  }
  REQUIRE(tracer.copy(chunks(kScratch, 0, 1), 0, kOutput, 7, {}, {}).ok());
  const std::vector<Diagnostic> problems = tracer.check_postcondition(10);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].message ==
        "output[7] of rank 0 must hold input[7] of rank 0, but holds 262144 terms, too many to list");
}

}  // namespace gc3::compiler::test
