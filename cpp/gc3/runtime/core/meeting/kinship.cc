#include "gc3/runtime/core/meeting/kinship.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "gc3/base/knobs.h"
#include "gc3/base/launch.h"
#include "gc3/runtime/core/meeting/peer_process.h"

namespace gc3::core {
namespace {

namespace fs = std::filesystem;

constexpr int kMostAround = 16;  // processes between a rank and its launcher
constexpr std::size_t kMostAncestors = 64;
constexpr pid_t kAdopter = 1;  // becomes the parent of processes whose parent has ended
// For which facts about processes hold. They may change right after they were read in any case.
constexpr std::chrono::milliseconds kMoment{10};
constexpr std::uint64_t kTogether = 2;  // seconds within which one launch starts its ranks, see may_be_left_over

std::string program_of(pid_t process) {
  std::error_code error;
  return fs::read_symlink("/proc/" + std::to_string(process) + "/exe", error).string();
}

std::string control_group_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/cgroup");
  return proc_text(file);
}

template <class Use>
void each_process(Use use) {
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t process = 0;
    const auto [stop, wrong] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (wrong == std::errc() && stop == name.data() + name.size()) use(process);
  }
}

std::uint64_t ticks(std::uint64_t seconds) { return seconds * static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK)); }

std::string named(pid_t process) { return "process " + std::to_string(process); }

}  // namespace

Kinship::Seen& Kinship::seen(pid_t process) const {
  const auto now = std::chrono::steady_clock::now();
  if (now - seen_since_ > kMoment) {
    seen_.clear();
    seen_since_ = now;
  }
  return seen_[process];
}

std::optional<ProcessFacts> Kinship::facts_of(pid_t process) const {
  Seen& about = seen(process);
  if (!std::exchange(about.has_facts, true)) about.facts = core::facts_of(process);
  return about.facts;
}

// Environments of other users' processes are ignored; root could read them.
std::optional<Kinship::Claim> Kinship::claim_of(pid_t process) const {
  Seen& about = seen(process);
  if (std::exchange(about.has_claim, true) || !is_own(process)) return about.claim;
  const Result<Launch> launch = read_launch(environment_of(process));
  if (!launch.ok()) return {};
  const Launch& told = launch.value();
  about.claim =
      told.here ? Claim{told.here->rank, told.here->size, told.here_job} : Claim{told.rank, told.size, told.job};
  return about.claim;
}

// A process that has not made its own session is in the session of the process that started it. If its parent is in
// another session, it has been given that parent, or the parent has changed its session since.
bool Kinship::is_left(pid_t process) const {
  const std::optional<ProcessFacts> facts = facts_of(process);
  if (!facts || facts->parent <= 0 || facts->session == process) return false;
  const std::optional<ProcessFacts> parent = facts_of(facts->parent);
  return parent && parent->session != facts->session;
}

std::vector<pid_t> Kinship::children_of(pid_t process) const {
  std::vector<pid_t> found;
  std::error_code error;
  bool listed = false;
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (fs::directory_iterator entry(tasks, error), end; !error && entry != end; entry.increment(error)) {
    std::ifstream file(entry->path() / "children");
    listed = listed || file.is_open();
    for (pid_t child = 0; file >> child;) found.push_back(child);
  }
  if (listed) return found;
  // The kernel does not have these lists.
  each_process([&](pid_t child) {
    const std::optional<ProcessFacts> facts = facts_of(child);
    if (facts && facts->parent == process) found.push_back(child);
  });
  return found;
}

Origin Kinship::origin_of(pid_t process, std::optional<std::uint32_t> rank) const {
  const auto is_told = [&](pid_t who) {
    const std::optional<Claim> claim = claim_of(who);
    if (claim && !rank) rank = claim->rank;
    return claim && claim->rank == rank && claim->job == job_;
  };
  const bool declared = is_told(process);
  Origin origin;
  origin.rank = rank.value_or(0);
  origin.process = process;
  origin.top = process;
  origin.declared = declared;
  for (int i = 0; i < kMostAround; ++i) {
    const std::optional<ProcessFacts> facts = facts_of(origin.top);
    origin.launcher = facts ? facts->parent : 0;
    if (origin.launcher <= 0 || !origin.declared || !is_told(origin.launcher)) break;
    origin.top = origin.launcher;
  }
  origin.left = is_left(origin.top);
  if (const std::optional<ProcessFacts> facts = facts_of(origin.top)) {
    origin.session = facts->session;
    origin.started = facts->started;
  }
  if (origin.launcher <= 0) origin.control_group = control_group_of(origin.top);
  for (pid_t next = origin.launcher; next > 0 && origin.ancestors.size() < kMostAncestors;) {
    origin.ancestors.push_back(next);
    const std::optional<ProcessFacts> facts = facts_of(next);
    const std::optional<ProcessFacts> parent = facts ? facts_of(facts->parent) : std::nullopt;
    next = parent && parent->session == facts->session ? facts->parent : 0;
  }
  return origin;
}

// If the environment does not say which rank a process is, for example because a script sets variables of its own, each
// process of the same program may be a rank.
bool Kinship::has_other_ranks(const Origin& origin) const {
  if (origin.launcher <= 0) return false;
  const std::string program = origin.declared ? std::string() : program_of(origin.process);
  for (const pid_t child : children_of(origin.launcher)) {
    if (child == origin.top || child == origin.process) continue;
    const std::optional<Claim> claim = claim_of(child);
    if (claim ? claim->job == job_ && claim->rank != origin.rank
              : !program.empty() && program_of(child) == program && is_own(child)) {
      return true;
    }
  }
  return false;
}

// Children that the adopter has started cannot be distinguished from those that it has adopted. But a launch has ended
// when the next one of the same name begins, so the start times decide.
bool Kinship::may_be_left_over(const Origin& origin, const Origin& from) {
  const bool adopted = origin.left || origin.launcher == kAdopter;
  return adopted && from.launcher != origin.process && origin.started + ticks(kTogether) < from.started;
}

bool Kinship::are_unknown_together(const Origin& a, const Origin& b) {
  if (a.launcher > 0 || b.launcher > 0 || a.started == 0 || b.started == 0) return false;
  return std::max(a.started, b.started) - std::min(a.started, b.started) <= ticks(kTogether) &&
         a.control_group == b.control_group;
}

bool Kinship::kin(const Origin& a, const Origin& b) {
  if ((a.launcher > 0 && a.launcher == b.process) || (b.launcher > 0 && b.launcher == a.process)) return true;
  if (may_be_left_over(a, b) || may_be_left_over(b, a)) return false;
  if (are_unknown_together(a, b)) return true;
  return a.launcher == b.launcher && a.launcher > 0 && a.left == b.left && (!a.left || a.session == b.session);
}

// The adopter does not count if it is the launcher of one of them, because that launcher may have ended.
bool Kinship::have_common_ancestor(const Origin& a, const Origin& b) {
  return std::ranges::any_of(a.ancestors, [&](pid_t one) {
    return std::ranges::count(b.ancestors, one) != 0 &&
           (one != kAdopter || (a.launcher != kAdopter && b.launcher != kAdopter));
  });
}

bool Kinship::may_join(const Origin& a, const Origin& b) const {
  if (kin(a, b)) return true;
  if (may_be_left_over(a, b) || may_be_left_over(b, a)) return false;
  return (secret_ || have_common_ancestor(a, b)) && a.left == b.left && !has_other_ranks(a) && !has_other_ranks(b);
}

std::string Kinship::difference(const Origin& a, const Origin& b) const {
  const auto side = [](const Origin& o) {
    return "rank " + std::to_string(o.rank) + " (process " + std::to_string(o.process) + ") was started by process " +
           std::to_string(o.launcher);
  };
  if (!secret_ && (a.launcher <= 0 || b.launcher <= 0)) {
    const Origin& unknown = a.launcher <= 0 ? a : b;
    return "rank " + std::to_string(unknown.rank) + " (" + named(unknown.process) +
           ") was started from outside of its PID namespace, or /proc does not show by whom; such ranks need the same "
           "GC3_SECRET, or one control group and a start within " +
           std::to_string(kTogether) + " s";
  }
  if (may_be_left_over(a, b) || may_be_left_over(b, a)) {
    const Origin& first = a.started < b.started ? a : b;
    const Origin& second = a.started < b.started ? b : a;
    return side(first) + ", " + side(second) + " " + std::to_string((second.started - first.started) / ticks(1)) +
           " s later, so the first may be left over from a launch that has crashed; ranks whose parent is process 1, "
           "or "
           "whose launcher has ended, must start within " +
           std::to_string(kTogether) + " s";
  }
  return side(a) + ", " + side(b) +
         (secret_ ? std::string() : "; ranks started in several terminals need the same GC3_SECRET");
}

std::optional<std::string> Kinship::ambiguity(const std::vector<Origin>& members) const {
  std::map<std::uint32_t, std::set<pid_t>> by_rank;
  std::set<pid_t> launchers;
  for (const Origin& member : members) {
    by_rank[member.rank].insert(member.top);
    launchers.insert(member.launcher);
  }
  const auto look_at = [&](pid_t process) {
    const std::optional<Claim> claim = claim_of(process);
    if (!claim || claim->job != job_) return;
    const Origin origin = origin_of(process, claim->rank);
    const bool unknown = !secret_ && origin.launcher <= 0 && members.front().launcher <= 0;
    if (unknown && !are_unknown_together(origin, members.front())) return;
    if (!may_be_left_over(origin, members.front())) by_rank[claim->rank].insert(origin.top);
  };
  const bool together = launchers.size() == 1 && *launchers.begin() > 0;
  if (together) {
    for (const pid_t child : children_of(*launchers.begin())) look_at(child);
  } else if (std::ranges::all_of(members, [](const Origin& m) { return m.declared; })) {
    each_process(look_at);
  }
  for (const auto& [rank, processes] : by_rank) {
    if (processes.size() < 2) continue;
    return named(*processes.begin()) + " and " + named(*std::next(processes.begin())) + " were both told to be rank " +
           std::to_string(rank) + (together ? " by " + named(*launchers.begin()) : "");
  }
  return {};
}

std::vector<std::string> Kinship::other_names(const Origin& own) const {
  std::vector<std::string> found;
  if (own.launcher <= 0) return found;
  for (const pid_t child : children_of(own.launcher)) {
    const std::optional<Claim> claim = child == own.top ? std::nullopt : claim_of(child);
    if (!claim || claim->job == job_) continue;
    found.push_back(named(child) + " is rank " + std::to_string(claim->rank) + " of a job with " + claim->job);
  }
  return found;
}

}  // namespace gc3::core
