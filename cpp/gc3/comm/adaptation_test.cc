// All ranks run the same program in each call, whatever they wait for between calls, and which programs are tried.
#include "gc3/comm/adaptation.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/files.h"
#include "gc3/ir/addition_order.h"
#include "gc3/runtime/cpu/test_ranks.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3::comm {
namespace {

using model::Protocol;
using select::CallShape;
using select::Recipe;
using select::Row;
using select::Selection;
using testing::expect;

constexpr std::uint32_t kRanks = 3;
constexpr std::size_t kCalls = 1500;
constexpr std::size_t kCount = 3000;

// What each rank has run in each call, in memory that the ranks share.
struct Logs {
  std::uint64_t programs[kRanks][kCalls];
};

struct SharedLogs {
  SharedLogs()
      : logs(static_cast<Logs*>(
            mmap(nullptr, sizeof(Logs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(logs != MAP_FAILED);
  }
  ~SharedLogs() { munmap(logs, sizeof(Logs)); }
  SharedLogs(const SharedLogs&) = delete;
  SharedLogs& operator=(const SharedLogs&) = delete;
  Logs* logs;
};

Row row(const std::string& text, std::shared_ptr<const Recipe> recipe) {
  Row made;
  made.source = text;
  made.recipe = std::move(recipe);
  return made;
}

Row row_of(const std::string& text, const ir::Program& program) {
  return row(text, select::recipe_of(ir::as_read(program), text));
}

// The first one is that of the table; rank 1 cannot make the one called "broken".
std::vector<Row> rows(std::uint32_t rank) {
  const auto pairs = [](Protocol protocol) { return testing::allpairs_allreduce(kRanks, false, protocol); };
  const auto ring = [](Protocol protocol) { return testing::ring_allreduce(kRanks, false, protocol); };
  const auto broken = [=](const CallShape&) -> Result<ir::ClassProgram> {
    if (rank == 1) return Diagnostic(ErrorCode::FileUnreadable, "gone");
    return ir::as_read(ring(Protocol::LL128));
  };
  return {row_of("pairs", pairs(Protocol::Simple)), row_of("ring", ring(Protocol::Simple)),
          row_of("pairs LL", pairs(Protocol::LL)),
          row("broken", std::make_shared<const Recipe>(Recipe{broken, "broken"})),
          row_of("ring LL", ring(Protocol::LL))};
}

bool learns(std::uint32_t rank, AdaptMode mode, Logs& logs) {
  const auto core = testing::join(testing::meeting_of(rank, kRanks));
  const Selection table(rows(rank));
  AdaptOptions options;
  options.mode = mode;
  options.share = 1'000'000;
  Adaptation adaptation(*core, options,
                        [](const Recipe& recipe, const CallShape& shape) { return recipe.make(shape); });
  const CallShape shape{model::CollectiveKind::allreduce, kRanks, kCount * sizeof(float)};
  const Row& first = *table.find(shape);
  const auto ready = testing::prepare(*core, first.recipe->make(shape).value().representative);
  Adaptation::Class* const of = adaptation.find(shape, false, first, ready, table);
  if (!expect(of != nullptr, rank, "no class")) return false;
  std::mt19937 random(rank);
  std::vector<float> in(kCount, static_cast<float>(rank + 1));
  std::vector<float> out(kCount);
  for (std::size_t c = 0; c < kCalls; ++c) {
    if (random() % 97 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    cpu::Membership::Turn turn;
    if (!expect(core->enter(turn, {}).ok(), rank, "closed")) return false;
    const Status status = adaptation.run(turn, *of, {}, [&](cpu::ProcessProgram& program) {
      logs.programs[rank][c] = program.fingerprint();
      return program.run(turn, {in.data(), out.data(), kCount}, {});
    });
    if (!expect(status.ok(), rank, status.ok() ? "" : status.error().str())) return false;
    if (!expect(out[c % kCount] == 6, rank, "wrong result")) return false;
  }
  adaptation.close();
  return expect(!adaptation.describe(shape, first).empty(), rank, "no description");
}

TEST_CASE("ranks that are apart run the same program in each call, and only what all of them have") {
  const SharedLogs shared;
  testing::run_ranks(kRanks, [&](std::uint32_t rank) { return learns(rank, AdaptMode::on, *shared.logs); });
  std::set<std::uint64_t> ran;
  for (std::size_t c = 0; c < kCalls; ++c) {
    for (std::uint32_t r = 1; r < kRanks; ++r) REQUIRE(shared.logs->programs[r][c] == shared.logs->programs[0][c]);
    ran.insert(shared.logs->programs[0][c]);
  }
  CHECK(ran.size() == 4);
}

TEST_CASE("where results must be the same bits, only programs that add in the same order are tried") {
  const SharedLogs shared;
  testing::run_ranks(kRanks, [&](std::uint32_t rank) { return learns(rank, AdaptMode::exact, *shared.logs); });
  const std::set<std::uint64_t> ran(std::begin(shared.logs->programs[0]), std::end(shared.logs->programs[0]));
  CHECK(ran.size() == 2);  // "pairs" with both protocols
}

TEST_CASE("the order of additions depends on the algorithm alone") {
  const auto order = [](const ir::Program& program) { return ir::addition_order(program); };
  const auto ring = order(testing::ring_allreduce(4, false, Protocol::Simple));
  const auto pairs = order(testing::allpairs_allreduce(4, false, Protocol::Simple));
  REQUIRE(ring.has_value());
  REQUIRE(pairs.has_value());
  CHECK(ring == order(testing::ring_allreduce(4, false, Protocol::LL)));
  CHECK(ring != pairs);
  CHECK(ring != order(testing::ring_allreduce(4, false, Protocol::Simple, 2)));  // of other chunks
  ir::Program stuck = testing::one_message();
  CHECK(order(stuck).has_value());
  std::swap(stuck.threadblocks[1].recv_peer, stuck.threadblocks[1].send_peer);
  CHECK_FALSE(order(stuck).has_value());
}

TEST_CASE("wishes to learn that are no wishes") {
  CHECK(parse_adapt_mode("exact").value() == AdaptMode::exact);
  CHECK(parse_adapt_mode("").value() == AdaptMode::rows);
  CHECK(parse_adapt_mode("yes").error().code == ErrorCode::BadOption);
  AdaptOptions options;
  const Selection table(rows(0));
  CHECK(options.wish(table) == 0);
  options.mode = AdaptMode::on;
  const std::uint64_t on = options.wish(table);
  CHECK(on == options.wish(Selection(rows(2))));
  CHECK(on != options.wish(Selection()));
  options.candidates = table;
  CHECK(on != options.wish(table));
}

}  // namespace
}  // namespace gc3::comm
