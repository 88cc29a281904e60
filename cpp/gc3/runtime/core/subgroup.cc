// Subgroups, which only their own ranks make: the first of these offers memory in its block, and the others look for
// the offer there.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ranges>
#include <set>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/sha256.h"
#include "gc3/runtime/core/group_blocks.h"

namespace gc3::core {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kYields = 200;  // before a wait sleeps
constexpr std::chrono::microseconds kSleep{100};
constexpr std::chrono::milliseconds kBetweenLooks{10};
constexpr std::size_t kMaxListed = 8;  // ranks named in one message

std::string names_of(const std::vector<std::uint32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < kMaxListed; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text + (ranks.size() > kMaxListed ? ", ..." : "");
}

// `ordinal`: the number of groups that were made of these ranks before.
std::array<std::uint64_t, 2> key_of(const std::vector<std::uint32_t>& ranks, std::uint64_t ordinal) {
  Sha256 hash;
  hash.update({reinterpret_cast<const char*>(&ordinal), sizeof ordinal});
  hash.update({reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof ranks[0]});
  const Digest digest = hash.finish();
  std::array<std::uint64_t, 2> key{};
  std::memcpy(key.data(), digest.data(), sizeof key);
  return key;
}

// Polls until `look` returns a value. Regularly calls `check`, whose error ends the wait, and goes on with `pending`.
template <class Look, class Check>
auto wait_for(Pending& pending, Look look, Check check) -> Result<typename decltype(look())::value_type> {
  const Clock::time_point start = Clock::now();
  Clock::time_point checked = start;
  for (int looks = 0;; ++looks) {
    if (auto found = look()) return std::move(*found);
    if (pending.go_on()) continue;
    if (looks < kYields) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(kSleep);
    const Clock::time_point now = Clock::now();
    if (now - checked < kBetweenLooks) continue;
    checked = now;
    GC3_CHECK(check(std::chrono::duration<double>(now - start).count()));
  }
}

}  // namespace

Result<std::unique_ptr<Group>> Group::subgroup(const std::vector<std::uint32_t>& ranks, std::string name,
                                               std::optional<double> timeout_s, const Interrupted& interrupted) {
  if (!job_->here()) return Diagnostic(ErrorCode::UsedAfterFork, "");
  GC3_CHECK(check());
  std::set<std::uint32_t> distinct;
  for (const std::uint32_t r : ranks) {
    if (r >= size()) {
      return Diagnostic(ErrorCode::RankOutOfRange, std::to_string(r) + " of " + std::to_string(size()) + " ranks");
    }
    if (!distinct.insert(r).second) {
      return Diagnostic(ErrorCode::BadArgument, "rank " + std::to_string(r) + " is twice in the list of a group");
    }
  }
  if (std::ranges::find(ranks, rank_) == ranks.end()) {
    return Diagnostic(ErrorCode::BadArgument, "rank " + std::to_string(rank_) + " is not in the list of a group (" +
                                                  names_of(ranks) + "); only the ranks in the list make it");
  }
  GC3_ASSIGN(std::unique_ptr<Group> group, make({ranks, false, interrupted}, std::move(name), timeout_s));
  GC3_CHECK(group->begin({CallKind::split}));
  GC3_CHECK(group->exchange({}, interrupted));
  group->finish();
  group->choose_waiting();
  return group;
}

Result<std::unique_ptr<Group>> Group::shrink(std::optional<double> timeout_s, const Interrupted& interrupted) {
  if (!job_->here()) return Diagnostic(ErrorCode::UsedAfterFork, "");
  if (placement_.several()) {
    return Diagnostic(ErrorCode::BetweenHosts, "a communicator whose ranks are on several hosts cannot shrink yet");
  }
  for (;;) {
    const std::vector<std::uint32_t> ranks = present();
    if (ranks.size() < size() && check().ok()) {
      const auto lost = std::ranges::mismatch(ranks, std::views::iota(0U)).in1 - ranks.begin();
      give_up(Diagnostic(ErrorCode::RankLost, who(static_cast<std::uint32_t>(lost)) + " has ended or left"));
    }
    Result<std::unique_ptr<Group>> made = make({ranks, true, interrupted}, name_, timeout_s);
    if (!made.ok()) {
      if (present() == ranks) return made;
      continue;
    }
    Group& group = *made.value();
    GC3_CHECK(group.begin({CallKind::split}));
    GC3_ASSIGN(const bool met, group.all_posted(interrupted));
    if (!met) continue;
    group.finish();
    group.choose_waiting();
    return made;
  }
}

Result<std::unique_ptr<Group>> Group::make(const Making& making, std::string name, std::optional<double> timeout_s) {
  const std::vector<std::uint32_t>& ranks = making.ranks;
  std::uint64_t ordinal = 0;
  {
    // Groups after a loss count apart: not every rank has tried to make the same others before.
    std::vector<std::uint32_t> counted = ranks;
    if (making.after_loss) counted.push_back(size());
    const std::lock_guard lock(subgroups_mutex_);
    ordinal = subgroups_[counted]++;
    if (making.after_loss) ordinal = ~ordinal;
  }
  const Key key = key_of(ranks, ordinal);
  const auto rank = static_cast<std::uint32_t>(std::ranges::find(ranks, rank_) - ranks.begin());
  std::vector<std::uint32_t> members;
  for (const std::uint32_t r : ranks) members.push_back(members_[r]);
  std::unique_ptr<Group> group = child(std::move(members), rank, timeout_s.value_or(timeout_s_));
  group->name_ = std::move(name);
  // Each host of the group has its own memory, from its first rank there.
  Making near{{}, making.after_loss, making.interrupted};
  for (const std::uint32_t r : group->ranks_here()) near.ranks.push_back(ranks[r]);
  const bool first = near.ranks.front() == rank_;
  Result<Extent> control = first ? offer(key, near, group->control_bytes()) : take(key, near);
  if (control.ok() && first) {
    const std::string_view what(reinterpret_cast<const char*>(key.data()), sizeof key);
    GC3_CHECK(group->describe_for_leader(control.value(), child_id({header().id[0], header().id[1]}, what)));
    GC3_CHECK(group->announce_to_leader(control.value()));
  }
  if (!control.ok()) {
    Diagnostic& problem = control.error();
    return problem.note("while the group of ranks " + names_of(ranks) + " was made");
  }
  GC3_CHECK(group->attach(control.value()));
  return group;
}

Status Group::check_making(const Making& making) const {
  if (!making.after_loss) GC3_CHECK(check());
  if (making.interrupted && making.interrupted()) {
    return Diagnostic(ErrorCode::Aborted, who(rank_) + " was interrupted");
  }
  return {};
}

std::vector<std::uint32_t> Group::present() const {
  const std::vector<std::uint32_t> dead = job_->dead(members_);
  std::vector<std::uint32_t> found;
  for (std::uint32_t r = 0; r < size(); ++r) {
    const bool ended = std::ranges::find(dead, members_[r]) != dead.end();
    if (!ended && load(block(r).left, std::memory_order_acquire) == 0) found.push_back(r);
  }
  return found;
}

Result<bool> Group::all_posted(const Interrupted& interrupted) {
  const std::uint64_t number = ++exchanges_;
  RankBlock::Turn& mine = own_->turns[number % 2];
  store(mine.chain, chain_);
  store(mine.number, number, std::memory_order_release);
  bells_.ring();
  const auto posted = [&](std::uint32_t r) {
    return load(block(r).turns[number % 2].number, std::memory_order_acquire) >= number;
  };
  const auto missing = [&] {
    std::vector<std::uint32_t> found;
    for (std::uint32_t r = 0; r < size(); ++r) {
      if (!posted(r)) found.push_back(r);
    }
    return found;
  };
  bool lost = false;
  const auto look = [&]() -> std::optional<bool> {
    if (lost) return false;
    if (missing().empty()) return true;
    return {};
  };
  const auto check_wait = [&](double waited_s) -> Status {
    if (interrupted && interrupted()) return Diagnostic(ErrorCode::Aborted, who(rank_) + " was interrupted");
    GC3_CHECK(check());
    for (const std::uint32_t r : missing()) {
      // What a rank has posted before it ended is seen after its end was.
      lost = lost || (!job_->dead({members_[r]}).empty() && !posted(r));
    }
    if (waited_s < timeout_s_) return {};
    const std::vector<std::uint32_t> late = missing();
    return Diagnostic(ErrorCode::Timeout, late.empty() ? "" : who(late.front()) + " has not made the group");
  };
  return wait_for(job_->pending(), look, check_wait);
}

Status Group::all_live(const std::vector<std::uint32_t>& ranks) const {
  std::vector<std::uint32_t> members;
  for (const std::uint32_t r : ranks) members.push_back(members_[r]);
  const std::vector<std::uint32_t> dead = job_->dead(members);
  if (dead.empty()) return {};
  const auto first = std::ranges::find(members, dead.front()) - members.begin();
  return Diagnostic(ErrorCode::RankLost, who(ranks[static_cast<std::size_t>(first)]) + " has ended");
}

Result<Extent> Group::offer(const Key& key, const Making& making, std::uint64_t bytes) {
  const std::vector<std::uint32_t>& ranks = making.ranks;
  GC3_CHECK(all_live(ranks));  // the offer would never be taken by all
  Result<Extent> extent = job_->allocate(bytes, "a communicator");
  if (ranks.size() == 1) return extent;
  const auto find_room = [&]() -> std::optional<Offer*> {
    for (Offer& offer : own_->offers) {
      std::uint64_t unused = 0;
      if (std::atomic_ref(offer.state).compare_exchange_strong(unused, 1, std::memory_order_acquire)) return &offer;
    }
    return {};
  };
  const auto check_wait = [&](double waited_s) -> Status {
    GC3_CHECK(check_making(making));
    if (waited_s < timeout_s_) return {};
    return Diagnostic(ErrorCode::Timeout, who(rank_) + " makes " + std::to_string(kOffers) +
                                              " other groups, whose ranks have not made them yet");
  };
  GC3_ASSIGN(Offer* const room, wait_for(job_->pending(), find_room, check_wait));
  store(room->key[0], key[0]);
  store(room->key[1], key[1]);
  store(room->offset, extent.ok() ? extent.value().offset : 0);
  store(room->bytes, extent.ok() ? extent.value().bytes : 0);
  store(room->taken, 0);
  store(room->state, 2, std::memory_order_release);  // with all of the above
  return extent;
}

Result<Extent> Group::take(const Key& key, const Making& making) {
  const std::vector<std::uint32_t>& ranks = making.ranks;
  const std::uint32_t from = ranks.front();
  // An offer to this rank does not change until this rank has taken it.
  const auto look = [&]() -> std::optional<Extent> {
    for (Offer& offer : block(from).offers) {
      if (load(offer.state, std::memory_order_acquire) != 2) continue;
      if (load(offer.key[0]) != key[0] || load(offer.key[1]) != key[1]) continue;
      const Extent found{load(offer.offset), load(offer.bytes)};
      // acq_rel: all other ranks have read the offer before the last one frees it.
      if (std::atomic_ref(offer.taken).fetch_add(1, std::memory_order_acq_rel) + 1 == ranks.size() - 1) {
        store(offer.state, 0, std::memory_order_release);
      }
      return found;
    }
    return {};
  };
  const auto check_wait = [&](double waited_s) -> Status {
    GC3_CHECK(check_making(making));
    GC3_CHECK(all_live(ranks));
    if (load(block(from).left, std::memory_order_acquire) != 0) {
      return Diagnostic(ErrorCode::RankLost, who(from) + " has closed the communicator");
    }
    if (waited_s > kStoppedAfter && job_->stopped(members_[from])) {
      return Diagnostic(ErrorCode::RankLost, who(from) + " has been stopped");
    }
    if (waited_s < timeout_s_) return {};
    return Diagnostic(ErrorCode::Timeout, who(from) + " has not made the group");
  };
  GC3_ASSIGN(const Extent found, wait_for(job_->pending(), look, check_wait));
  if (found.bytes == 0) {
    return Diagnostic(ErrorCode::OutOfMemory, who(from) + " has got no shared memory for the communicator");
  }
  return found;
}

}  // namespace gc3::core
