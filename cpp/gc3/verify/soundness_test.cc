// Attacks: wrong programs by an author who knows how the verifier compares values, and finally also its random numbers.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "gc3/model/test_old_hash.h"
#include "gc3/verify/dataflow.h"
#include "gc3/verify/execution.h"
#include "gc3/verify/program.h"
#include "gc3/verify/schedule.h"
#include "gc3/verify/test_programs.h"
#include "gc3/verify/test_weaver.h"
#include "gc3/verify/verify.h"

namespace gc3::verify::test {
namespace {

using ir::Program;
using model::Collective;
using model::CollectiveKind;
using model::test::exchange;
using model::test::Form;
using model::test::Numbers;
using model::test::old_form;
using model::test::old_hash;
using model::test::UInt128;
using model::test::vanishing_counts;

constexpr std::uint32_t kChunks = 32;  // of each of two ranks: 64 inputs to choose among
constexpr UInt128 kModulus = (UInt128{1} << 127U) - 1;

struct OldHashes {
  using Value = UInt128;
  Value input(std::uint32_t rank, std::uint32_t index) { return old_hash(rank, index); }
  Value sum(Value a, Value b) { return a + b; }
  void unwritten(Step /*reader*/, model::Place /*place*/) {}
};

bool old_scheme_accepts(const Program& p) {
  const ProgramIndex index(p);
  Findings findings(10);
  const Connections connections = match_transfers(index, findings);
  const Schedule schedule = find_schedule(index, connections, p.slots, findings);
  OldHashes hashes;
  Execution<OldHashes> execution(index, connections, hashes);
  execution.run(schedule);
  bool all = findings.empty();
  for (std::uint32_t r = 0; r < p.collective.ranks(); ++r) {
    for (std::uint32_t i = 0; i < p.collective.output_chunks(r); ++i) {
      all = all && execution.output(r, i).value == old_hash(p.collective.demand(r, i));
    }
  }
  return all;
}

bool accepts(const Program& p, const Weights& weights) {
  const ProgramIndex index(p);
  Findings findings(10);
  const Connections connections = match_transfers(index, findings);
  const Schedule schedule = find_schedule(index, connections, p.slots, findings);
  REQUIRE(findings.empty());
  check_dataflow(index, connections, schedule, weights, findings);
  return findings.empty();
}

Weights drawn(const Collective& collective) {
  Result<Weights> weights = Weights::draw(collective);
  REQUIRE(weights.ok());
  return std::move(weights).value();
}

Form form_of(const Weights& weights) {
  Form form{{}, model::test::Long::of(kModulus)};
  for (std::uint32_t k = 0; k < 2 * kChunks; ++k) {
    const Residue weight = weights.input(k / kChunks, k % kChunks);
    form.weights.push_back(UInt128{weight.hi()} << 64U | weight.lo());
  }
  return form;
}

void check_refused(const Program& p, const std::string& part) {
  const Report report = verify(p);
  REQUIRE_FALSE(report.ok());
  CHECK(report.diagnostics.front().info().name == "WrongResult");
  CHECK_MESSAGE(report.diagnostics.front().str().find(part) != std::string::npos, report.diagnostics.front().str());
}

// Rank 0 holds the input of rank 1 in scratch[0..kChunks) and sums inputs, each as often as `counts` says.
class Adder {
 public:
  explicit Adder(Weaver& w) : w_(w), tb_(w.tb(0, kNobody, kNobody)) {
    w.scratch(0, kChunks);
    w.send(1, w.tb(1, 0, kNobody), in(0), kChunks);
    w.recv(0, w.tb(0, kNobody, 1), sc(0), kChunks);
  }
  static Place input(std::uint32_t k) { return k < kChunks ? in(k) : sc(k - kChunks); }
  void sum(std::uint32_t from, std::uint32_t to, Place dst) {
    w_.copy(0, tb_, input(from), dst);
    w_.reduce(0, tb_, input(to), dst);
  }
  void add(const Numbers& counts, Place dst) {
    for (std::uint32_t k = 0; k < counts.size(); ++k) {
      for (std::int64_t n = 0; n < counts[k]; ++n) {
        if (empty_) {
          w_.copy(0, tb_, input(k), dst);
        } else {
          w_.reduce(0, tb_, input(k), dst);
        }
        empty_ = false;
      }
    }
  }
  void begun() { empty_ = false; }

 private:
  Weaver& w_;
  std::uint32_t tb_;
  bool empty_ = true;
};

// An AllReduce of two ranks, with `surplus` in the first chunk.
Program forged_allreduce(const Numbers& surplus) {
  Weaver w("forged", collective(CollectiveKind::allreduce, 2, kChunks, false));
  Adder adder(w);
  for (std::uint32_t i = 0; i < kChunks; ++i) adder.sum(i, kChunks + i, out(i));
  adder.begun();
  adder.add(surplus, out(0));
  w.send(0, w.tb(0, 1, kNobody, 1), out(0), kChunks);
  w.recv(1, w.tb(1, kNobody, 0, 1), out(0), kChunks);
  return w.finish(1);
}

// Requires the inputs with positive numbers and delivers those with negative ones: the same number of terms.
Program forged_custom(const Numbers& exchanged) {
  Result<Collective> demanded = model::test::demanding(exchanged);
  REQUIRE(demanded.ok());
  Weaver w("forged", std::move(demanded).value());
  Adder adder(w);
  Numbers delivered;
  for (const std::int64_t n : exchanged) delivered.push_back(-n);
  adder.add(delivered, out(0));
  return w.finish(1);
}

// Doubles the input `times` times. In the end the output holds it 2^times times, and once more if `once_more`.
Program doubling(std::uint32_t times, bool once_more) {
  Weaver w("doubling", collective(CollectiveKind::broadcast, 1, 1, false));
  w.scratch(0, 2);
  const std::uint32_t tb = w.tb(0, kNobody, kNobody);
  w.copy(0, tb, in(0), sc(0));
  for (std::uint32_t n = 0; n < times; ++n) {
    w.copy(0, tb, sc(0), sc(1));
    w.reduce(0, tb, sc(1), sc(0));
  }
  if (once_more) w.reduce(0, tb, in(0), sc(0));
  w.copy(0, tb, sc(0), out(0));
  return w.finish(1);
}

// The output holds the input 1 + 2^32 (2^127 - 1) times: 1 modulo the modulus, and 1 in 32 bits that wrap.
Program one_in_both() {
  Weaver w("one in both", collective(CollectiveKind::broadcast, 1, 1, false));
  w.scratch(0, 2);
  const std::uint32_t tb = w.tb(0, kNobody, kNobody);
  w.copy(0, tb, in(0), out(0));
  w.copy(0, tb, in(0), sc(0));
  for (std::uint32_t n = 0; n < 32 + 127; ++n) {
    if (n >= 32) w.reduce(0, tb, sc(0), out(0));
    w.copy(0, tb, sc(0), sc(1));
    w.reduce(0, tb, sc(1), sc(0));
  }
  return w.finish(1);
}

}  // namespace

TEST_CASE("counts that are 0 in some modulus") {
  CHECK(verify(doubling(0, false)).ok());
  CHECK(old_scheme_accepts(doubling(128, true)));
  CHECK(accepts(doubling(0, false), Weights({{1, 2}}, {{3, 4}})));
  for (const std::uint32_t times : {1, 2, 31, 32, 33, 61, 62, 63, 64, 96, 122, 127, 128, 192, 254, 256, 300}) {
    for (const bool once_more : {false, true}) {
      CAPTURE(times);
      CAPTURE(once_more);
      check_refused(doubling(times, once_more), "too much");
      CHECK_FALSE(accepts(doubling(times, once_more), Weights({{1, 2}}, {{3, 4}})));
    }
  }
  check_refused(one_in_both(), "too much");
  check_refused(doubling(1, true), "holds 3 x rank 0 input[0] instead of rank 0 input[0]");
  check_refused(doubling(61, true), "holds 2305843009213693953 x rank 0 input[0] instead of rank 0 input[0]");
  check_refused(doubling(127, false), "holds 2^62 or more x rank 0 input[0] instead of rank 0 input[0]");
}

TEST_CASE("an AllReduce with a surplus that a lattice reduction has found") {
  const Numbers surplus = vanishing_counts(old_form(2, kChunks));
  REQUIRE_FALSE(surplus.empty());
  const Program p = forged_allreduce(surplus);
  CHECK(p.instructions.size() < 1000);
  CHECK(old_scheme_accepts(p));
  check_refused(p, "rank 0 output[0]");
  CHECK(verify(forged_allreduce(Numbers(2 * kChunks))).ok());  // the rest of the program is right

  // With this hash, and weights that the author knows, the sum is right, but there are too many terms.
  const Weights known = drawn(p.collective);
  const Numbers found = vanishing_counts(form_of(known));
  REQUIRE_FALSE(found.empty());
  Residue sum;
  for (std::uint32_t k = 0; k < found.size(); ++k) {
    for (std::int64_t n = 0; n < found[k]; ++n) sum = sum + known.input(k / kChunks, k % kChunks);
  }
  CHECK(sum == Residue());
  CHECK_FALSE(accepts(forged_allreduce(found), known));
}

TEST_CASE("the right number of terms, but the wrong ones") {
  const Numbers exchanged = exchange({old_form(2, kChunks)});
  REQUIRE_FALSE(exchanged.empty());
  const Program p = forged_custom(exchanged);
  CHECK(old_scheme_accepts(p));
  check_refused(p, "missing: ");
}

TEST_CASE("a wrong program passes only if its author knows the weights") {
  const Collective inputs = collective(CollectiveKind::allreduce, 2, kChunks, false);
  const Weights known = drawn(inputs);
  const Numbers exchanged = exchange({form_of(known)});
  REQUIRE_FALSE(exchanged.empty());
  const Program p = forged_custom(exchanged);
  CHECK(accepts(p, known));
  CHECK_FALSE(old_scheme_accepts(p));
  for (int n = 0; n < 100; ++n) CHECK_FALSE(accepts(p, drawn(p.collective)));
  check_refused(p, "missing: ");
  const std::string first = verify(p).diagnostics.front().str();
  for (int n = 0; n < 10; ++n) CHECK(verify(p).diagnostics.front().str() == first);
}

TEST_CASE("every input and every output is checked: exchanging one term for another is found") {
  std::mt19937_64 random(3);
  for (int n = 0; n < 200; ++n) {
    Numbers exchanged(2 * kChunks);
    const std::size_t surplus = random() % exchanged.size();
    const std::size_t lacking = random() % exchanged.size();
    exchanged[surplus] -= 1;
    exchanged[lacking] += 1;
    if (surplus == lacking) continue;
    check_refused(forged_custom(exchanged), "missing: ");
  }
}

TEST_CASE("residues modulo 2^127 - 1 form a field") {
  const std::uint64_t ones = ~std::uint64_t{0};
  CHECK(Residue(ones, ones) == Residue());  // 127 bits of it, all ones
  CHECK(Residue(ones >> 1U, ones - 1) + Residue(0, 1) == Residue());
  CHECK(Residue(ones >> 1U, ones - 1) * Residue(ones >> 1U, ones - 1) == Residue(0, 1));              // (-1)^2
  CHECK(Residue(1, 0) * Residue(std::uint64_t{1} << 62U, 0) == Residue(0, std::uint64_t{1} << 63U));  // 2^64 2^126
  std::mt19937_64 random(5);
  for (int n = 0; n < 1000; ++n) {
    const Residue a(random(), random());
    const Residue b(random(), random());
    const Residue c(random(), random());
    CHECK(a * b == b * a);
    CHECK(a * (b + c) == a * b + a * c);
    CHECK((a * b) * c == a * (b * c));
    // By doubling and adding, without the product under test.
    Residue slow;
    for (int bit = 126; bit >= 0; --bit) {
      slow = slow + slow;
      const std::uint64_t word = bit < 64 ? b.lo() : b.hi();
      if ((word >> (static_cast<unsigned>(bit) % 64U) & 1U) != 0) slow = slow + a;
    }
    CHECK(a * b == slow);
    CHECK(slow.hi() < std::uint64_t{1} << 63U);
  }
}

TEST_CASE("a wrong value of very many terms is reported at once, by their number") {
  constexpr std::uint32_t kHalf = 1U << 19U;  // one more term and their sums are too many to list
  Weaver w("sum of everything", collective(CollectiveKind::scatter, 1, kHalf + 1, false));
  w.scratch(0, kHalf);
  const std::uint32_t tb = w.tb(0, kNobody, kNobody);
  w.synchronise(false);  // there is one threadblock
  w.copy(0, tb, in(0), sc(0), kHalf);
  w.reduce(0, tb, in(kHalf), sc(0));
  for (std::uint32_t n = kHalf / 2; n > 0; n /= 2) w.reduce(0, tb, sc(n), sc(0), n);
  w.copy(0, tb, in(0), out(0), kHalf + 1);
  w.copy(0, tb, sc(0), out(7));
  check_refused(w.finish(1), "rank 0 output[7] holds 524289 terms, too many to list, instead of rank 0 input[7]");
}

}  // namespace gc3::verify::test
