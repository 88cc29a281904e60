// Programs that are generated while calls run: all ranks use the same one, from the same call on, and it is bounded
// what this costs.
#include "gc3/comm/generation.h"

#include <doctest/doctest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/comm/adaptation.h"
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

constexpr std::uint32_t kTwo = 2;
constexpr std::size_t kFew = 300;  // elements
constexpr std::int64_t kSecond = 1'000'000'000;

TEST_CASE("in no minute work takes more than 5 % of a core, if it takes what was said") {
  std::mt19937 random(7);
  Allowance allowance;
  std::vector<std::pair<std::int64_t, std::int64_t>> done;  // begin and ns
  std::int64_t now = 0;
  std::uint32_t refused = 0;
  while (now < 3600 * kSecond) {
    const std::int64_t most = 1 + static_cast<std::int64_t>(random() % Allowance::kMostNs);
    const std::int64_t takes = random() % 3 == 0 ? most : most / 4;
    if (allowance.begin(now, most)) {
      CHECK_FALSE(allowance.begin(now, 1));  // one thread at a time
      done.emplace_back(now, takes);
      now += takes + static_cast<std::int64_t>(random() % kSecond);  // it may have waited for the core
      allowance.end(now, takes);
    } else {
      ++refused;
    }
    now += static_cast<std::int64_t>(random() % kSecond);
  }
  CHECK(refused > 100);
  CHECK(done.size() > 100);
  std::int64_t all = 0;
  for (std::size_t first = 0; first < done.size(); ++first) {
    std::int64_t sum = 0;
    for (std::size_t i = first; i < done.size() && done[i].first + done[i].second <= done[first].first + 60 * kSecond;
         ++i)
      sum += done[i].second;
    CHECK(sum <= 3 * kSecond);
    all += done[first].second;
  }
  CHECK(all * 50 > now);  // and it is used: more than 2 %
}

TEST_CASE("work that has taken more than was said is paid for afterwards") {
  Allowance allowance;
  REQUIRE(allowance.begin(0, kSecond));
  allowance.end(8 * kSecond, 8 * kSecond);
  CHECK_FALSE(allowance.begin(9 * kSecond, 1));
  CHECK_FALSE(allowance.begin(67 * kSecond, 1));
  CHECK(allowance.begin(68 * kSecond, Allowance::kMostNs));
  allowance.end(69 * kSecond, 0);
  CHECK_FALSE(allowance.begin(70 * kSecond, Allowance::kMostNs + 1));
}

std::shared_ptr<const Recipe> recipe_of(const std::string& text, const ir::Program& program) {
  return select::recipe_of(ir::as_read(program), text);
}

const auto kRing = [] { return testing::ring_allreduce(kTwo, false, Protocol::Simple); };

// One rank that learns from one program.
class OneRank {
 public:
  OneRank(std::uint32_t rank, Generation generation, std::optional<std::uint64_t> end_size = {},
          std::shared_ptr<const Recipe> first_recipe = recipe_of("ring", kRing()),
          const std::shared_ptr<const Recipe>& candidate = nullptr)
      : core_(testing::join(testing::meeting_of(rank, kTwo))), rank_(rank) {
    Row row;
    row.limits.ranks.last = kTwo;
    row.limits.size.last = end_size;
    row.recipe = std::move(first_recipe);
    table_ = Selection({row});
    AdaptOptions options;
    options.mode = AdaptMode::on;
    options.share = 1'000'000;
    options.generation = std::move(generation);
    if (candidate != nullptr) {
      row.recipe = candidate;
      options.candidates = Selection({row});
    }
    adaptation_.emplace(*core_, options, [](const Recipe& recipe, const CallShape& call) { return recipe.make(call); });
    const Row& first = *table_.find(shape_);
    ready_ = testing::prepare(*core_, first.recipe->make(shape_).value().representative);
    class_ = adaptation_->find(shape_, false, first, ready_, table_);
  }

  // A call; what it ran, or 0.
  std::uint64_t call() {
    std::vector<float> in(kFew, static_cast<float>(rank_ + 1));
    std::vector<float> out(kFew);
    cpu::Membership::Turn turn;
    if (!expect(core_->enter(turn, {}).ok(), rank_, "closed")) return 0;
    std::uint64_t ran = 0;
    const Status status = adaptation_->run(turn, *class_, {}, [&](cpu::ProcessProgram& program) {
      ran = program.fingerprint();
      if (slow) std::this_thread::sleep_for(std::chrono::microseconds(300));
      return program.run(turn, {in.data(), out.data(), kFew}, {});
    });
    if (!expect(status.ok(), rank_, status.ok() ? "" : status.error().str())) return 0;
    return expect(out.front() == 3 && out.back() == 3, rank_, "wrong result") ? ran : 0;
  }
  // At least one, until it says this.
  bool call_until(const std::string& said) {
    for (int i = 0; i < 1'000'000; ++i) {
      // All ranks say the same after the same call, but for reasons that only one knows.
      if (i != 0 && describe().find(said) != std::string::npos) return true;
      const std::uint64_t which = call();
      if (which == 0) return false;
      all_ran_ = all_ran_ * 31 + which;
      ran_.insert(which);
    }
    return expect(false, rank_, describe());
  }
  bool slow = false;

  std::string describe() const { return adaptation_->describe(shape_, *table_.find(shape_)); }
  void close() { adaptation_->close(); }
  std::size_t programs() const { return ran_.size(); }
  // What the calls have run, in their order, of each rank.
  std::vector<std::uint64_t> exchanged() {
    cpu::Membership::Turn turn;
    if (!expect(core_->enter(turn, {}).ok(), rank_, "closed")) return {};
    const auto all = core_->exchange(turn, {all_ran_}, {}).value();
    return {all[0][0], all[1][0]};
  }

 private:
  std::unique_ptr<cpu::Communicator> core_;
  std::uint32_t rank_;
  Selection table_;
  CallShape shape_{model::CollectiveKind::allreduce, kTwo, kFew * sizeof(float)};
  Adaptation::Ready ready_;
  std::optional<Adaptation> adaptation_;
  Adaptation::Class* class_ = nullptr;
  std::uint64_t all_ran_ = 0;
  std::set<std::uint64_t> ran_;
};

// Gives these programs one after the other; null: an error.
Generation generation_of(std::vector<std::shared_ptr<const Recipe>> programs) {
  const auto make = [programs](const std::string&, const CallShape&,
                               const std::vector<std::string>& tried) -> Result<std::shared_ptr<const Recipe>> {
    for (const auto& program : programs) {
      if (program == nullptr) return Diagnostic(ErrorCode::Internal, "planned");
      if (std::ranges::count(tried, program->text) == 0) return program;
    }
    return std::shared_ptr<const Recipe>();
  };
  return {make, std::make_shared<Allowance>()};
}

const auto kPairs = [] { return testing::allpairs_allreduce(kTwo, false, Protocol::Simple); };
const auto kPairsLL = [] { return testing::allpairs_allreduce(kTwo, false, Protocol::LL); };

TEST_CASE("a program is generated, and all ranks run it in the same calls") {
  testing::run_ranks(kTwo, [](std::uint32_t rank) {
    OneRank one(rank, generation_of({recipe_of("pairs", kPairs()), recipe_of("pairs again", kPairs())}));
    if (!one.call_until("not pairs again (it is the same as another one)")) return false;
    const std::string said = one.describe();
    while (one.programs() < 2) {
      if (!one.call_until("")) return false;
    }
    const auto all = one.exchanged();
    one.close();
    return expect(all[0] == all[1], rank, "other programs on the other rank") &&
           expect(said.find("generated, because no row was made for such sizes: pairs (") != std::string::npos, rank,
                  said);
  });
}

TEST_CASE("nothing is generated where a row was made for the calls, or that is not wished") {
  testing::run_ranks(kTwo, [](std::uint32_t rank) {
    OneRank made(rank, generation_of({recipe_of("pairs", kPairs())}), 1 << 20);
    OneRank off(rank, {});
    for (int i = 0; i < 1500; ++i) {
      if (made.call() == 0 || off.call() == 0) return false;
    }
    const bool none = made.describe().find("the load has changed") != std::string::npos ||
                      made.describe().find("generated") == std::string::npos;
    return expect(none, rank, made.describe()) &&
           expect(off.describe().find("generated") == std::string::npos, rank, off.describe());
  });
}

TEST_CASE("where a row was made for the calls, a program is generated once the load has changed") {
  testing::run_ranks(kTwo, [](std::uint32_t rank) {
    OneRank one(rank, generation_of({recipe_of("pairs", kPairs())}), 1 << 20);
    for (int i = 0; i < 100; ++i) {
      if (one.call() == 0) return false;
    }
    one.slow = true;
    return one.call_until("generated, because the load has changed: pairs");
  });
}

TEST_CASE("a program that one rank cannot generate, or generates differently, is not used") {
  testing::run_ranks(kTwo, [](std::uint32_t rank) {
    OneRank one(rank, rank == 1 ? generation_of({nullptr}) : generation_of({recipe_of("pairs", kPairs())}));
    if (!one.call_until(rank == 1 ? "not one like ring (planned)" : "not pairs (another rank cannot make it)"))
      return false;
    OneRank two(rank, generation_of({recipe_of("pairs", rank == 1 ? kPairs() : kPairsLL())}));
    return two.call_until("not pairs (no memory, or not the same on all ranks)");
  });
}

// A recipe whose program takes a quarter of a minute's processor time to make; not so the first `free` times.
std::shared_ptr<const Recipe> slow_recipe(const std::string& text, ir::Program (*program)(), int free) {
  const auto used = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::int64_t{now.tv_sec} * kSecond + now.tv_nsec;
  };
  const auto make = [=, times = std::make_shared<int>()](const CallShape&) -> Result<ir::ClassProgram> {
    const std::int64_t enough = used() + Allowance::kMostNs / 4 + 1;
    while (*times == free && used() < enough) continue;
    ++*times;
    return ir::as_read(program());
  };
  return std::make_shared<const Recipe>(Recipe{make, text});
}

TEST_CASE("nothing is generated like a program for whose kin a minute has too little processor time") {
  testing::run_ranks(kTwo, [](std::uint32_t rank) {
    // Before all ranks have the second one, they know what making the first one takes. It is first made for the class.
    OneRank one(rank, generation_of({recipe_of("pairs", kPairs())}), {}, slow_recipe("ring", kRing, 1),
                slow_recipe("pairs LL", kPairsLL, 0));
    return one.call_until(" (making it may take more than 3 s)");
  });
}

TEST_CASE("that there is no other program to generate is told once") {
  testing::run_ranks(kTwo, [](std::uint32_t rank) {
    OneRank one(rank, generation_of({}));
    const std::string said = "not one like ring (all of these were tried)";
    if (!one.call_until(said)) return false;
    for (int i = 0; i < 2000; ++i) {
      if (one.call() == 0) return false;
    }
    const std::string all = one.describe();
    return expect(all.find(said) == all.rfind(said), rank, all);
  });
}

TEST_CASE("a communicator closes while a program is generated, and after that nothing is begun") {
  testing::run_ranks(kTwo, [](std::uint32_t rank) {
    const auto begun = std::make_shared<std::promise<void>>();
    const auto go_on = std::make_shared<std::promise<void>>();
    const auto waits = [begun,
                        wait = go_on->get_future().share()](const auto&...) -> Result<std::shared_ptr<const Recipe>> {
      begun->set_value();
      wait.wait();
      return std::shared_ptr<const Recipe>();
    };
    const auto allowance = std::make_shared<Allowance>();
    OneRank one(rank, {waits, allowance});
    if (!one.call_until("another one is being made")) return false;
    begun->get_future().wait();
    if (!expect(!allowance->begin(0, 1), rank, "a second thread")) return false;
    std::thread other([&] { go_on->set_value(); });
    one.close();
    other.join();
    return true;
  });
}

}  // namespace
}  // namespace gc3::comm
