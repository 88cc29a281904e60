#include "gc3/comm/generation.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "gc3/base/guarded.h"
#include "gc3/comm/adaptation.h"

namespace gc3::comm {
namespace {

constexpr std::uint32_t kMostGenerated = 8;  // for a class, with those that cannot be made
// A generated program has up to twice as many chunks as the one that it is like. Making it takes the square of that at
// most.
constexpr std::int64_t kGrowth = 4;

}  // namespace

bool Allowance::begin(std::int64_t now, std::int64_t ns) {
  const std::lock_guard lock(mutex_);
  while (!spent_.empty() && spent_.front().first <= now - kMinuteNs) spent_.pop_front();
  std::int64_t all = ns;
  for (const auto& [when, took] : spent_) all += took;
  if (works_ || all > kMostNs) return false;
  works_ = true;
  return true;
}

void Allowance::end(std::int64_t now, std::int64_t ns) {
  const std::lock_guard lock(mutex_);
  spent_.emplace_back(now, ns);
  works_ = false;
}

std::int64_t Adaptation::processor_ns() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

// What the calls of a class are that no row was made for; empty: nothing is to be generated. The same on all ranks.
std::string Adaptation::unmade(const Class& of) {
  if (!of.unmade.empty()) return "no row was made for such " + of.unmade;
  return of.learner.changes() == 0 ? "" : "the load has changed";
}

// Within an exchange. `decided`: all ranks have made the candidate, or some rank cannot; `refused`: one cannot.
void Adaptation::generate(Class& of, bool decided, bool refused) {
  const std::uint32_t own = 1U << of.arms.size();
  if (of.candidate && decided) {
    Class::Candidate& it = *of.candidate;
    if (refused) {
      of.own_ready &= ~own;
      of.own_failed &= ~own;
      std::pair told(std::move(it.text), it.why.empty() ? "another rank cannot make it" : std::move(it.why));
      if (std::ranges::find(of.refused, told) == of.refused.end()) of.refused.push_back(std::move(told));
    } else {
      of.arms.push_back(std::move(it.arm));
      of.learner.add();
    }
    of.candidate.reset();
  }
  const std::uint32_t all = (1U << of.arms.size()) - 1;
  // Under a load that goes on changing nothing is ever settled.
  const bool wanted = !unmade(of).empty() && (of.learner.settled() || of.learner.changes() != 0) &&
                      ((of.ready | of.failed) & all) == all && of.arms.size() < select::Learner::kMostArms &&
                      of.generated < kMostGenerated;
  if (!of.candidate && wanted) {
    ++of.generated;
    of.candidate.emplace();
  }
  if (of.candidate && !of.candidate->begun) begin(of);
}

// Begins to make the candidate, if there is processor time for it now.
void Adaptation::begin(Class& of) {
  Class::Candidate& it = *of.candidate;
  const Class::Arm& best = of.arms[of.learner.best()];
  const std::int64_t most = best.cost_ns == 0 ? Allowance::kMostNs : kGrowth * best.cost_ns;
  const auto decide = [&of](Class::Candidate made) {
    made.begun = true;
    (made.arm.program == nullptr ? of.own_failed : of.own_ready) |= 1U << of.arms.size();
    of.candidate = std::move(made);
  };
  if (most > Allowance::kMostNs) {
    return decide({.text = "one like " + best.recipe->text, .why = "making it may take more than 3 s"});
  }
  Allowance& allowance = *options_.generation.allowance;
  if (!allowance.begin(now(), most)) return;
  it.begun = true;
  std::vector<std::string> tried;
  for (const Class::Arm& arm : of.arms) tried.push_back(arm.recipe->text);
  for (const auto& [text, why] : of.refused) tried.push_back(text);
  const auto started = maker_.start([this, &of, &allowance, decide, base = best.recipe->text, tried] {
    const std::int64_t before = processor_ns();
    Class::Candidate made;
    Status done = guarded([&] { return closing_ ? Status() : make_candidate(of, base, tried, made); });
    if (!done.ok()) made.why = done.error().message;
    made.arm.cost_ns = processor_ns() - before;
    allowance.end(now(), made.arm.cost_ns);
    const std::lock_guard lock(mutex_);
    decide(std::move(made));
    return Status();
  });
  if (started.ok()) return;
  allowance.end(now(), 0);
  decide({.text = "one like " + best.recipe->text, .why = started.error().message});
}

Status Adaptation::make_candidate(Class& of, const std::string& base, const std::vector<std::string>& tried,
                                  Class::Candidate& made) {
  made.text = "one like " + base;
  GC3_ASSIGN(made.arm.recipe, options_.generation.make(base, of.shape, tried));
  if (made.arm.recipe == nullptr) return Diagnostic(ErrorCode::BadArgument, "all of these were tried");
  made.text = made.arm.recipe->text;
  GC3_ASSIGN(made.arm.program, make_ready(of, *made.arm.recipe));
  return {};
}

std::string Adaptation::describe_generated(const Class& of) {
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  for (std::size_t a = of.listed; a < of.arms.size(); ++a) {
    const std::uint64_t ns = of.learner.time_of(static_cast<std::uint32_t>(a));
    if ((of.failed >> a & 1U) != 0) {
      add("not " + of.arms[a].recipe->text + " (no memory, or not the same on all ranks)");
      continue;
    }
    add(of.arms[a].recipe->text + " (" + (ns == 0 ? "not timed yet" : time_text(ns)) + ")");
  }
  for (const auto& [program, why] : of.refused) add("not " + program + " (" + why + ")");
  if (of.candidate) add(of.candidate->begun ? "another one is being made" : "another one waits for processor time");
  return text.empty() ? "" : "; generated, because " + unmade(of) + ": " + text;
}

}  // namespace gc3::comm
