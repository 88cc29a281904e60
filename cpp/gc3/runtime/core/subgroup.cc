// Subgroups, which only their own ranks make: the first of them on a host takes memory, and leaves where it is in its
// block of this group, where the others find it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <ranges>
#include <set>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/sha256.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/sharing/group_blocks.h"
#include "gc3/runtime/core/waiting/wait_policy.h"

namespace gc3::core {
namespace {

using Clock = WaitClock::Clock;

constexpr int kYields = 200;  // before a wait sleeps
constexpr std::chrono::microseconds kSleep{100};
constexpr std::chrono::milliseconds kBetweenLooks{10};
constexpr std::size_t kMaxListed = 8;  // ranks named in one message
constexpr std::uint64_t kMostRanks = std::uint64_t{1} << 24U;

std::string names_of(const std::vector<std::uint32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < kMaxListed; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text + (ranks.size() > kMaxListed ? ", ..." : "");
}

std::string group_at(const std::vector<std::uint32_t>& ranks, const std::optional<std::string>& place) {
  return "group of ranks " + names_of(ranks) + (place ? ", made at " + *place : "");
}

// The same on all ranks that mean the same group.
template <class... Parts>
std::array<std::uint64_t, 2> key_of(const Parts&... parts) {
  Sha256 hash;
  (hash.update({reinterpret_cast<const char*>(std::data(parts)), std::size(parts) * sizeof *std::data(parts)}), ...);
  const Digest digest = hash.finish();
  std::array<std::uint64_t, 2> key{};
  std::memcpy(key.data(), digest.data(), sizeof key);
  return key;
}

// Releases a lock in shared memory.
struct Unlock {
  std::uint64_t& word;
  ~Unlock() { store(word, 0, std::memory_order_release); }  // with what the next one will read
};

// Polls until `look` returns a value. Regularly calls `check`, whose error ends the wait, and goes on with `pending`.
template <class Look, class Check>
auto wait_for(Pending& pending, Look look, Check check) -> Result<typename decltype(look())::value_type> {
  Clock::time_point checked = Clock::now();
  WaitClock clock(checked);
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
    GC3_CHECK(check(clock.waited_s(now)));
  }
}

}  // namespace

Result<std::unique_ptr<Group>> Group::subgroup(const std::vector<std::uint32_t>& ranks, std::string name,
                                               std::optional<double> timeout_s, const Interrupted& interrupted,
                                               bool idle, std::string_view place) {
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
  const Making making{ranks, false, interrupted};
  GC3_ASSIGN(std::unique_ptr<Group> group, make(making, std::move(name), timeout_s));
  if (!place.empty()) group->own_->note.say(group->sequence_ + 1, place);
  GC3_CHECK(group->begin({CallKind::split}));
  // A name says which group is meant, so its ranks may meet in its first call, in whatever order they make groups.
  if (group->name_.empty()) {
    if (Status met = meet(*group, making, idle, place); !met.ok()) {
      return met.error().note("while the group of ranks " + names_of(ranks) + " was made");
    }
  }
  group->finish();
  group->choose_waiting();
  return group;
}

Result<std::unique_ptr<Group>> Group::shrink(std::optional<double> timeout_s, const Interrupted& interrupted,
                                             const Diagnostic* refused) {
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
    const Making making{ranks, true, interrupted};
    Result<std::unique_ptr<Group>> made = make(making, name_, timeout_s);
    if (!made.ok()) {
      if (present() == ranks) return made;
      continue;
    }
    Group& group = *made.value();
    if (refused != nullptr) {
      const std::string what = CallRecord{.kind = CallKind::refused}.describe() + ": " + refused->message;
      Diagnostic reason(ErrorCode::CallsDiffer, "some shrink the communicator");
      group.give_up(reason.note("rank " + std::to_string(rank_) + ": " + what));
      return *refused;
    }
    group.own_->note.say(1, "shrink()");
    GC3_CHECK(group.begin({CallKind::split}));
    const Result<bool> met = group.all_posted(*this, making);
    await({});
    if (!met.ok()) return met.error();
    if (!met.value()) continue;
    group.finish();
    group.choose_waiting();
    return made;
  }
}

Result<std::unique_ptr<Group>> Group::make(const Making& making, std::string name, std::optional<double> timeout_s) {
  const std::vector<std::uint32_t>& ranks = making.ranks;
  // Groups after a loss count apart: not every rank has tried to make the same others before.
  const std::array<std::uint64_t, 2> kind{ranks.size(), making.after_loss ? 1U : 0U};
  Key key = key_of(kind, ranks, name);
  {
    const std::lock_guard lock(subgroups_mutex_);
    key = key_of(key, std::array{subgroups_[key]++});
  }
  const auto rank = static_cast<std::uint32_t>(std::ranges::find(ranks, rank_) - ranks.begin());
  std::vector<std::uint32_t> members;
  for (const std::uint32_t r : ranks) members.push_back(members_[r]);
  std::unique_ptr<Group> group = child(std::move(members), rank, timeout_s.value_or(timeout_s_));
  group->name_ = std::move(name);
  // Each host of the group has its own memory, from its first rank there.
  Making near{{}, making.after_loss, making.interrupted};
  for (const std::uint32_t r : group->ranks_here()) near.ranks.push_back(ranks[r]);
  Result<Extent> control = find_or_take(key, near, *group);
  if (!control.ok()) {
    if (!making.after_loss) GC3_CHECK(check());  // as in `meet`
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

Result<bool> Group::all_posted(Group& parent, const Making& making) {
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
    GC3_CHECK(check_making(making));
    GC3_CHECK(check());
    // Ranks that make something else wait for this one, and can shrink as well once they know.
    if (parent.check().ok()) static_cast<void>(parent.check_order(*this, making.ranks, true));
    for (const std::uint32_t r : missing()) {
      // What a rank has posted before it ended, or left the parent, is seen after that was.
      const bool left = load(parent.block(making.ranks[r]).left, std::memory_order_acquire) != 0;
      lost = lost || ((left || !job_->dead({members_[r]}).empty()) && !posted(r));
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

Result<Extent> Group::find_or_take(const Key& key, const Making& near, Group& group) {
  const std::vector<std::uint32_t>& ranks = near.ranks;
  GC3_CHECK(all_live(ranks));  // the group would never be complete
  std::uint64_t& lock = header().lock;
  const std::uint64_t own = std::uint64_t{rank_} + 1;
  std::uint32_t from = rank_;  // that has taken the memory
  std::string why;             // it has not got any
  const auto refuse = [&](std::string reason) {
    why = std::move(reason);
    return Extent{};
  };
  const auto look = [&]() -> std::optional<Extent> {
    std::uint64_t nobody = 0;
    if (!std::atomic_ref(lock).compare_exchange_strong(nobody, own, std::memory_order_acquire)) return {};
    const Unlock unlock{lock};
    Offers::Offer* room = nullptr;
    Offers* offers = &header().offers;
    for (std::uint64_t more = 0;; offers = reinterpret_cast<Offers*>(job_->place(more, sizeof(Offers)))) {
      if (offers == nullptr) return refuse(": it may map no more");
      for (Offers::Offer& offer : offers->all) {
        const std::uint64_t taken = load(offer.taken);
        if (taken == 0) room = &offer;
        if (taken == 0 || load(offer.key[0]) != key[0] || load(offer.key[1]) != key[1]) continue;
        const std::uint64_t offset = load(offer.offset);
        from = static_cast<std::uint32_t>(load(offer.from));
        store(offer.taken, taken + 1 == ranks.size() ? 0 : taken + 1);
        return Extent{offset, offset == 0 ? 0 : whole_pages(group.control_bytes())};
      }
      more = load(offers->more, std::memory_order_acquire);  // the one who wrote it may have ended with the lock
      if (more == 0) break;
    }
    if (room == nullptr && ranks.size() > 1) {
      const Result<Extent> extent = job_->allocate(sizeof(Offers), "a communicator");
      if (!extent.ok()) return refuse(": " + extent.error().message);
      store(offers->more, extent.value().offset, std::memory_order_release);
      room = reinterpret_cast<Offers*>(job_->place(extent.value().offset, sizeof(Offers)))->all;
    }
    Result<Extent> extent = job_->allocate(group.control_bytes(), "a communicator");
    if (!extent.ok()) {
      extent = refuse(": " + extent.error().message);
    } else {
      // A rank that cannot map it tells the others when it attaches.
      const std::string_view what(reinterpret_cast<const char*>(key.data()), sizeof key);
      static_cast<void>(group.describe(extent.value(), child_id({header().id[0], header().id[1]}, what)));
    }
    if (ranks.size() > 1) {
      store(room->key[0], key[0]);
      store(room->key[1], key[1]);
      store(room->from, rank_);
      store(room->offset, extent.value().offset);
      store(room->taken, 1, std::memory_order_release);  // the last one, because this process may be killed before
    }
    return extent.value();
  };
  const auto check_wait = [&](double waited_s) -> Status {
    GC3_CHECK(check_making(near));
    std::uint64_t holder = load(lock);
    // What a rank has not finished under the lock before it ended is seen by nobody.
    if (holder - 1 < size() && !job_->dead({members_[holder - 1]}).empty()) {
      std::atomic_ref(lock).compare_exchange_strong(holder, 0, std::memory_order_relaxed);
    }
    if (waited_s < timeout_s_) return {};
    const std::string other = holder - 1 < size() ? who(static_cast<std::uint32_t>(holder - 1)) : "another rank";
    return Diagnostic(ErrorCode::Timeout, other + " is still making another group");
  };
  GC3_ASSIGN(const Extent found, wait_for(job_->pending(), look, check_wait));
  if (found.bytes == 0) {
    return Diagnostic(ErrorCode::OutOfMemory, who(from) + " has got no shared memory for the communicator" + why);
  }
  if (from == rank_ && group.placement_.several()) GC3_CHECK(group.announce_to_leader(found));
  return found;
}

Status Group::meet(Group& made, const Making& making, bool idle, std::string_view place) {
  const Interrupted look = [&] {
    if (const Status order = check_order(made, making.ranks, idle); !order.ok()) made.give_up(order.error());
    return making.interrupted && making.interrupted();
  };
  const std::uint64_t own = key_of(place)[0];
  const Result<std::vector<Payload>> met = made.exchange({own}, look);
  await({});
  if (met.ok()) {
    const bool same = std::ranges::all_of(met.value(), [&](const Payload& p) { return p[0] == own; });
    return same ? Status() : check_order(made, making.ranks, idle, true);
  }
  GC3_CHECK(check());  // a rank that has given this group up may have ended since
  Diagnostic problem = met.error();
  for (std::uint32_t i = 0; problem.code == ErrorCode::Timeout && i < made.size(); ++i) {
    const RankBlock& of = block(making.ranks[i]);
    const std::uint64_t begun = load(of.begun, std::memory_order_acquire);
    if (load(made.block(i).begun) != 0 || load(of.finished) == begun) continue;
    const std::string what = called(making.ranks[i], begun).value_or("which is over");
    problem.note("rank " + std::to_string(making.ranks[i]) + " is in call " + std::to_string(begun) +
                 " of the communicator, " + what);
  }
  return problem;
}

Status Group::check_order(const Group& made, const std::vector<std::uint32_t>& ranks, bool idle, bool differs) {
  GC3_CHECK(check());
  std::map<std::uint32_t, std::string> does;  // by rank
  std::optional<std::uint32_t> missing;
  for (std::uint32_t i = 0; i < ranks.size(); ++i) {
    const std::uint32_t r = ranks[i];
    const auto arrived = [&] { return load(made.block(i).begun, std::memory_order_acquire) != 0; };
    // acquire, and in this order: what a rank has done before it left, or waited elsewhere, is seen.
    const bool left = load(block(r).left, std::memory_order_acquire) != 0;
    const std::uint64_t begun = load(block(r).begun, std::memory_order_acquire);
    const std::uint64_t next = load(own_->begun) + 1;
    const auto first = block(r).history[next % kHistory].read(next);
    const bool refused = first && CallRecord::unpack(first->packed, 0, 0).kind == CallKind::refused;
    const bool waits = load(block(r).waits) != 0 && load(block(r).finished, std::memory_order_acquire) < begun;
    const bool ahead = idle && begun >= next && (waits || refused);
    const std::uint64_t other_call = refused ? next : begun;
    if (arrived()) {
      does.emplace(r, group_at(ranks, made.block(i).note.said(1)));
      continue;
    }
    if (left) return Diagnostic(ErrorCode::RankLost, who(r) + " has closed the communicator");
    if (!missing) missing = r;
    if (const std::optional<std::string> what = called(r, other_call); ahead && what) {
      does.emplace(r, "call " + std::to_string(other_call) + " of the communicator, " + *what);
      differs = true;
    }
  }
  const std::vector<std::uint32_t> circle = await(missing, group_at(ranks, made.own_->note.said(1)));
  for (std::size_t at = 0; at < circle.size(); ++at) {
    const group_blocks::Text& makes = block(circle[at]).makes;
    does[circle[at]] = makes.said(load(makes.noted)).value_or("another group") + ", awaits rank " +
                       std::to_string(circle[(at + 1) % circle.size()]);
    differs = true;
  }
  if (!differs) return {};
  std::map<std::string, std::string> said;
  for (const auto& [r, what] : does) said[what] += (said[what].empty() ? "" : ", ") + std::to_string(r);
  Diagnostic reason(ErrorCode::CallsDiffer, "some make a group");
  for (const auto& [what, whose] : said) reason.note("rank " + whose + ": " + what);
  return give_up(reason);
}

std::vector<std::uint32_t> Group::await(std::optional<std::uint32_t> rank, std::string_view what) {
  const std::uint64_t awaited = rank ? std::uint64_t{*rank} + 1 : 0;
  const std::uint64_t repeated = load(own_->label);
  const std::uint64_t theirs = rank ? load(block(*rank).label, std::memory_order_acquire) : 0;
  if (load(own_->awaited) != awaited) {
    if (rank) {
      label_ = (std::max(repeated, theirs) / kMostRanks + 1) * kMostRanks + rank_;
      own_->makes.say(label_, what);
      store(own_->label, label_, std::memory_order_release);
    }
    store(own_->awaited, awaited, std::memory_order_release);  // with the text
    tell_hosts();
    return {};
  }
  if (theirs > repeated) {
    store(own_->label, theirs, std::memory_order_release);
    tell_hosts();
  }
  if (!rank || theirs != label_ || repeated != label_) return {};
  std::vector<std::uint32_t> circle{rank_};
  for (std::uint32_t next = *rank; next != rank_;) {
    circle.push_back(next);
    const std::uint64_t after = load(block(next).awaited, std::memory_order_acquire);
    if (after == 0 || after > size() || circle.size() > size()) return {};  // what has come of it is still older
    next = static_cast<std::uint32_t>(after - 1);
  }
  return circle;
}

}  // namespace gc3::core
