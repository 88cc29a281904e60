#include "gc3/comm/adaptation.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <limits>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/mix64.h"
#include "gc3/ir/addition_order.h"
#include "gc3/ir/blocks.h"

namespace gc3::comm {
namespace {

using core::Group;
using select::CallShape;
using select::Learner;
using select::Recipe;
using select::Row;

constexpr std::size_t kFromTables = 12;    // with the table's first
constexpr std::size_t kFromLearned = 5;    // with the table's first
constexpr std::size_t kFromElsewhere = 6;  // programs that are not the table's, if there are so many
constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();

// Whether no rank can end the collective before the last one has begun it. In the others a rank may run ahead.
bool all_need_all(model::CollectiveKind kind) {
  using model::CollectiveKind;
  return kind == CollectiveKind::allreduce || kind == CollectiveKind::allgather ||
         kind == CollectiveKind::reducescatter || kind == CollectiveKind::alltoall;
}

// The time of a call, from when each rank began it, in the last bits of a clock, and how long each was in it.
std::uint64_t time_of(const std::vector<std::uint32_t>& begun, const std::vector<std::uint32_t>& took, bool together,
                      bool one_clock) {
  const auto [least, most] = std::ranges::minmax(took);
  if (!together) {
    std::uint64_t all = 0;
    for (const std::uint32_t ns : took) all += ns;
    return all / took.size();
  }
  // The rank that came last has waited the least.
  if (!one_clock) return least;
  // From the last beginning to the last end: what is before is a wait for a late rank, and says nothing of the program.
  const auto after = [](std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b); };
  std::uint32_t begin = begun[0];
  std::uint32_t end = begun[0] + took[0];
  for (std::size_t r = 1; r < begun.size(); ++r) {
    if (after(begun[r], begin) > 0) begin = begun[r];
    if (after(begun[r] + took[r], end) > 0) end = begun[r] + took[r];
  }
  return static_cast<std::uint64_t>(std::clamp<std::int64_t>(after(end, begin), least, most));
}

}  // namespace

std::string Adaptation::time_text(std::uint64_t ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g us", static_cast<double>(ns) / 1000.0);
  return text.data();
}

Result<AdaptMode> parse_adapt_mode(const std::string& text) {
  if (text == "0") return AdaptMode::off;
  if (text.empty() || text == "rows") return AdaptMode::rows;
  if (text == "1") return AdaptMode::on;
  if (text == "exact") return AdaptMode::exact;
  return Diagnostic(ErrorCode::BadOption, "adapt='" + text + "' (GC3_ADAPT): expected 0, rows, 1 or exact");
}

std::uint64_t AdaptOptions::wish(const select::Selection& table) const {
  if (mode == AdaptMode::off) return 0;
  const std::uint64_t how = mix64(share) ^ static_cast<std::uint64_t>(mode) ^ (generation.make ? 1U << 31U : 0U);
  return std::max<std::uint64_t>(mix64(table.digest() ^ mix64(candidates.digest() ^ mix64(how))), 1);
}

Adaptation::Adaptation(cpu::Communicator& core, AdaptOptions options, Make make)
    : core_(core), options_(std::move(options)), make_(std::move(make)) {}

Adaptation::~Adaptation() { closing_ = true; }

void Adaptation::close() {
  closing_ = true;
  if (!maker_.busy()) return;
  if (const auto last = maker_.start([] { return Status(); }); last.ok()) last.value().wait();
}

std::int64_t Adaptation::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Adaptation::Key Adaptation::key_of(const CallShape& shape, bool v, const Row& row) {
  const auto skew = static_cast<std::uint64_t>(std::min(shape.skew, 1e9));
  const auto powers = [](std::uint64_t value) { return static_cast<int>(std::bit_width(value)); };
  return {row.recipe.get(),
          static_cast<std::uint32_t>(shape.kind),
          shape.root,
          powers(shape.size),
          powers(skew),
          shape.in_place,
          v};
}

bool Adaptation::learns(const Row& row) const {
  return options_.mode != AdaptMode::off && row.adapt.value_or(options_.mode != AdaptMode::rows) && core_.size() > 1;
}

Adaptation::Class* Adaptation::find(const CallShape& shape, bool v, const Row& row, const Ready& ready,
                                    const select::Selection& table) {
  // What was learned is kept by the name of a collective, which says nothing of a custom one's condition.
  if (!learns(row) || shape.kind == model::CollectiveKind::custom) return nullptr;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Class>& found = classes_[key_of(shape, v, row)];
  if (found == nullptr) {
    found = std::make_unique<Class>();
    found->shape = shape;
    found->v = v;
    found->arms.push_back({row.recipe, ready});
    make_arms(*found, table);
    if (options_.learned.find(shape) == nullptr) found->unmade = row.unmade(shape);
  }
  return found.get();
}

void Adaptation::make_arms(Class& of, const select::Selection& table) {
  std::size_t known = 0;
  const auto add = [&](const std::shared_ptr<const Recipe>& recipe, std::size_t most = kFromTables) {
    const auto same = [&](const Class::Arm& arm) { return arm.recipe->text == recipe->text; };
    if (of.arms.size() < most && std::ranges::none_of(of.arms, same)) of.arms.push_back({recipe});
  };
  if (const Row* const row = options_.learned.find(of.shape)) {
    add(row->recipe);
    known = of.arms.size() - 1;  // 0: it is the program of the table
  }
  // Others are of other sizes.
  for (const auto& row : options_.learned.near(of.shape)) add(row->recipe, kFromLearned);
  for (const auto& row : table.near(of.shape)) add(row->recipe, kFromTables - kFromElsewhere);
  for (const auto& row : options_.candidates.near(of.shape)) add(row->recipe);
  of.listed = of.arms.size();
  of.learner = Learner(of.listed, known, options_.share);
}

Status Adaptation::next(const Turn& turn, Class& of, const core::Interrupted& interrupted) {
  while (of.free == 0 && of.left == 0) {
    const bool met = of.leg.timed;
    const std::int64_t begin = met ? now() : 0;
    if (met) GC3_CHECK(meet(turn, of, interrupted, begin));
    {
      const std::lock_guard lock(mutex_);
      of.leg = of.learner.next(of.ready & ~of.failed);
      if (met) {
        of.since = now();
        of.exchange_ns = static_cast<std::uint32_t>(std::clamp<std::int64_t>(of.since - begin, 1, kMost));
      }
      // After the first exchange, so that nothing is made for calls that come a few times only.
      const bool more = of.arms.size() > 1 || options_.generation.make;
      if (of.exchange_ns != 0 && !std::exchange(of.making, true) && more) compile(of);
    }
    if (((of.open >> of.leg.arm) & 1U) == 0) {
      GC3_CHECK(open(turn, of, of.leg.arm, interrupted));
      if (((of.failed >> of.leg.arm) & 1U) != 0) {
        of.leg.timed = false;  // nothing has run that could be told
        continue;
      }
    }
    of.program = of.arms[of.leg.arm].program.get();
    (of.leg.timed ? of.left : of.free) = of.leg.calls;
    of.calls += of.leg.calls;
    of.sum = 0;
  }
  return {};
}

void Adaptation::note(Class& of, std::int64_t begin, std::int64_t ns) {
  const auto took = static_cast<std::uint32_t>(std::clamp<std::int64_t>(ns, 1, kMost));
  of.sum += took;
  --of.left;
  if (of.left < of.took.size()) {
    of.begun[of.left] = static_cast<std::uint32_t>(begin);
    of.took[of.left] = took;
  }
}

// Tells all ranks how long the calls of the leg took, and what this rank has made.
Status Adaptation::meet(const Turn& turn, Class& of, const core::Interrupted& interrupted, std::int64_t begin) {
  const std::uint64_t mean = of.sum / of.leg.calls;
  const std::uint64_t between = of.since == 0 ? mean : static_cast<std::uint64_t>(begin - of.since) / of.calls;
  Group::Payload own{};
  for (std::size_t i = 0; i < of.took.size(); ++i) own[i] = std::uint64_t{of.begun[i]} << 32U | of.took[i];
  own[2] = mean << 32U | std::min<std::uint64_t>(between, kMost);
  static_assert(Learner::kMostArms <= 16);
  {
    const std::lock_guard lock(mutex_);
    own[3] = of.exchange_ns | std::uint64_t{of.own_ready} << 32U | std::uint64_t{of.own_failed} << 48U;
  }
  GC3_ASSIGN(const std::vector<Group::Payload> all, core_.exchange(turn, own, interrupted));
  of.calls = 0;
  const std::lock_guard lock(mutex_);
  const bool together = all_need_all(of.shape.kind);
  Learner::Times times{kMost, kMost, kMost, kMost};
  std::vector<std::uint32_t> begun(all.size());
  std::vector<std::uint32_t> took(all.size());
  for (std::size_t i = 0; i < of.took.size(); ++i) {
    for (std::size_t r = 0; r < all.size(); ++r) {
      begun[r] = static_cast<std::uint32_t>(all[r][i] >> 32U);
      took[r] = static_cast<std::uint32_t>(all[r][i]);
    }
    times.usual = std::min(times.usual, time_of(begun, took, together, !core_.placement().several()));
  }
  std::uint64_t sum = 0;
  std::uint32_t ready = kMost;
  std::uint32_t failed = of.failed;
  std::uint32_t decided = kMost;
  for (const Group::Payload& words : all) {
    const std::uint64_t its = words[2] >> 32U;
    sum += its;
    times.mean = std::min(times.mean, its);  // as in time_of, of the rank that has waited the least
    times.between = std::min(times.between, words[2] & kMost);
    times.exchange = std::min(times.exchange, words[3] & kMost);
    ready &= static_cast<std::uint32_t>(words[3] >> 32U & 0xffffU);
    failed |= static_cast<std::uint32_t>(words[3] >> 48U);
    decided &= static_cast<std::uint32_t>(words[3] >> 32U & 0xffffU) | static_cast<std::uint32_t>(words[3] >> 48U);
  }
  if (!together) times.mean = sum / all.size();
  of.ready = ready;
  const std::uint32_t candidate = 1U << of.arms.size();
  const bool refused = (failed & candidate) != 0;
  failed &= ~candidate;
  for (std::uint32_t a = 1; a < of.arms.size(); ++a) {
    if (((failed & ~of.failed) >> a & 1U) != 0) of.learner.exclude(a);
  }
  of.failed = failed;
  of.learner.heard(of.leg, times);
  if (options_.generation.make) generate(of, (decided & candidate) != 0, refused);
  return {};
}

// The memory of a program, which all ranks take together. Fails only if the communicator has failed.
Status Adaptation::open(const Turn& turn, Class& of, std::uint32_t arm, const core::Interrupted& interrupted) {
  cpu::ProcessProgram& program = *of.arms[arm].program;
  const auto agree = [&](std::uint64_t own) -> Result<bool> {
    GC3_ASSIGN(const std::vector<Group::Payload> all, core_.exchange(turn, {own}, interrupted));
    return std::ranges::all_of(all,
                               [&](const Group::Payload& words) { return words[0] == all[0][0] && words[0] != 0; });
  };
  // Different programs of one text would end the communicator.
  GC3_ASSIGN(bool good, agree(program.fingerprint() | 1U));
  if (good) {
    const Status opened = program.load(turn, interrupted);
    GC3_ASSIGN(good, agree(opened.ok() ? 1U : 0U));
  }
  const std::lock_guard lock(mutex_);
  of.open |= 1U << arm;
  if (good) return {};
  of.failed |= 1U << arm;
  of.learner.exclude(arm);
  return {};
}

void Adaptation::compile(Class& of) {
  const auto started = maker_.start([this, &of, count = of.arms.size()]() -> Status {
    for (std::size_t a = 0; a < count && !closing_; ++a) {
      const Recipe& recipe = *of.arms[a].recipe;
      const std::int64_t before = processor_ns();
      if (a == 0) static_cast<void>(make_program(of, recipe));  // for its order and cost
      Result<Ready> made = a == 0 ? Ready() : make_ready(of, recipe);
      const std::lock_guard lock(mutex_);
      of.arms[a].cost_ns = processor_ns() - before;
      if (a == 0) continue;
      if (made.ok()) of.arms[a].program = std::move(made).value();
      (made.ok() ? of.own_ready : of.own_failed) |= 1U << a;
    }
    return {};
  });
  if (!started.ok()) of.own_failed = ((1U << of.arms.size()) - 1) & ~1U;  // without a thread there is only the first
}

// A program that can serve the calls of a class.
Result<ir::ClassProgram> Adaptation::make_program(Class& of, const Recipe& recipe) {
  GC3_ASSIGN(ir::ClassProgram program, make_(recipe, of.shape));
  const bool adds = of.shape.kind == model::CollectiveKind::allreduce ||
                    of.shape.kind == model::CollectiveKind::reducescatter ||
                    of.shape.kind == model::CollectiveKind::reduce;
  if (options_.mode == AdaptMode::exact && adds) {
    GC3_ASSIGN(const ir::Program whole, ir::of_all_ranks(program));
    const auto order = ir::addition_order(whole);
    if (&recipe == of.arms[0].recipe.get()) of.order = order;
    if (!order || order != of.order) return Diagnostic(ErrorCode::BadArgument, "it adds in another order");
  }
  if (of.v) GC3_CHECK(ir::trace_blocks(program));
  return program;
}

// The same, prepared, unless it is that of an arm.
Result<Adaptation::Ready> Adaptation::make_ready(Class& of, const Recipe& recipe) {
  GC3_ASSIGN(const ir::ClassProgram program, make_program(of, recipe));
  const bool here = !core_.placement().several();  // slots of rows are those that suit shared memory
  GC3_ASSIGN(Ready ready,
             core_.prepare(program, here ? recipe.slots : 0, here ? recipe.slot_bytes : 0, recipe.thresholds));
  const std::lock_guard lock(mutex_);
  const auto same = [&](const Class::Arm& arm) { return arm.program == ready; };
  if (std::ranges::any_of(of.arms, same)) return Diagnostic(ErrorCode::BadArgument, "it is the same as another one");
  return ready;
}

std::string Adaptation::describe(const CallShape& shape, const Row& row) const {
  if (options_.differs)
    return "nothing, because the ranks differ in what they wish: adapt, adapt_share, GC3_GENERATE, or the table";
  if (!learns(row)) return "";
  const std::lock_guard lock(mutex_);
  auto at = classes_.find(key_of(shape, false, row));
  if (at == classes_.end()) at = classes_.find(key_of(shape, true, row));
  if (at == classes_.end()) return "there was no such call yet";
  const Class& of = *at->second;
  const Learner& learner = of.learner;
  std::string text = of.arms[learner.best()].recipe->text;
  if (learner.best() == 0) text = "the row's program";
  if (learner.best_ns() != 0) text += ", " + time_text(learner.best_ns()) + " a call";
  if (learner.best() != 0 && learner.time_of(0) != 0) text += " (the row's " + time_text(learner.time_of(0)) + ")";
  text += learner.settled() ? ", the best of " : ", so far, of ";
  text += std::to_string(of.arms.size() - static_cast<std::size_t>(std::popcount(of.failed))) + " programs";
  if (options_.mode == AdaptMode::exact) text += " that add in the row's order";
  text += " after " + std::to_string(learner.calls()) + " calls from " + shape.describe() + " to the next power of two";
  if (learner.changes() != 0) text += "; the load has changed " + std::to_string(learner.changes()) + " times";
  return text + describe_generated(of);
}

std::vector<Adaptation::Learned> Adaptation::learned() const {
  std::vector<Learned> found;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, of] : classes_) {
    const Learner& learner = of->learner;
    if (of->v || !learner.settled() || learner.best_ns() == 0) continue;
    const std::uint32_t best = learner.best();
    found.push_back({of->shape, of->arms[best].recipe->text, learner.best_ns(), learner.time_of(0), learner.calls()});
  }
  return found;
}

}  // namespace gc3::comm
