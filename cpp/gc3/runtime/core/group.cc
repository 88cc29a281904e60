#include "gc3/runtime/core/group.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/mix64.h"
#include "gc3/runtime/core/sharing/group_blocks.h"
#include "gc3/runtime/core/waiter.h"
#include "gc3/runtime/core/waiting/progress.h"

namespace gc3::core {
namespace {

// Whether Linux schedules each session as a group, between which it shares the cores.
bool schedules_sessions() {
  std::ifstream file("/proc/sys/kernel/sched_autogroup_enabled");
  return file.get() == '1';
}

}  // namespace

static_assert(sizeof(Group::Payload) == sizeof(group_blocks::RankBlock::Turn::payload));

std::uint64_t Group::control_bytes() const { return group_blocks::control_bytes(size(), true); }

Group::Header& Group::header() const { return *reinterpret_cast<Header*>(control_.data()); }
Group::RankBlock& Group::block(std::uint32_t rank) const {
  return *reinterpret_cast<RankBlock*>(control_.data() + kHeaderBytes + rank * sizeof(RankBlock));
}

Group::Group(std::shared_ptr<Job> job, std::vector<std::uint32_t> members, std::uint32_t rank, double timeout_s)
    : job_(std::move(job)), members_(std::move(members)), rank_(rank), timeout_s_(timeout_s) {
  find_places();
}

std::unique_ptr<Group> Group::child(std::vector<std::uint32_t> members, std::uint32_t rank, double timeout_s) const {
  std::unique_ptr<Group> made(new Group(job_, std::move(members), rank, timeout_s));
  for (const std::uint32_t member : made->members_) {
    const auto at = static_cast<std::uint32_t>(std::ranges::find(members_, member) - members_.begin());
    made->numbers_.push_back(numbers_.empty() ? at : numbers_[at]);
  }
  made->wait_mode_ = wait_mode_;
  made->single_copy_ = single_copy_;
  return made;
}

Result<std::unique_ptr<Group>> Group::world(const Meeting& meeting, const Options& options) {
  return meeting.route ? across(meeting, options) : on_host(meeting, options);
}

Result<std::unique_ptr<Group>> Group::on_host(const Meeting& meeting, const Options& options) {
  GC3_ASSIGN(Job::Joined joined, Job::join(meeting, group_blocks::control_bytes(meeting.size, false)));
  const std::uint32_t rank = meeting.rank;
  std::unique_ptr<Group> group(new Group(joined.job, std::move(joined.members), rank, options.timeout_s));
  Job& job = *group->job_;
  if (joined.unmapped) return group->give_up_unmapped(joined.control, *joined.unmapped);
  group->wait_mode_ = options.wait;
  GC3_CHECK(group->attach(joined.control));
  job.announce_cores();
  GC3_CHECK(group->begin({CallKind::barrier}));
  const auto session = static_cast<std::uint64_t>(getsid(0));
  GC3_ASSIGN(const auto offers,
             group->exchange({options.offers[0], options.offers[1], options.offers[2], session}, meeting.interrupted));
  if (!joined.again) {
    job.set_apart(schedules_sessions() &&
                  std::ranges::any_of(offers, [&](const Payload& p) { return p[3] != session; }));
  }
  group->compare(options, offers);
  group->choose_waiting();
  if (options.pin) job.pin(options.place.value_or(Place{rank, group->size()}));
  GC3_CHECK(group->probe(options, joined.again, meeting.interrupted));
  group->finish();
  return group;
}

void Group::compare(const Options& options, const std::vector<Payload>& said) {
  for (std::size_t i = 0; i < agreed_.size(); ++i) {
    const std::uint64_t own = options.offers[i];
    agreed_[i] = own != 0 && std::ranges::all_of(said, [&](const Payload& p) { return p[i] == own; });
  }
}

bool Group::runs(std::uint32_t rank) const {
  return job_->dead({members_[rank]}).empty() && !job_->stopped(members_[rank]);
}

std::vector<pid_t> Group::ended() const {
  std::vector<std::uint32_t> here;
  for (const std::uint32_t r : ranks_here()) here.push_back(members_[r]);
  std::vector<pid_t> found;
  for (const std::uint32_t place : job_->dead(here)) found.push_back(job_->process(place));
  return found;
}

std::vector<pid_t> Group::processes() const {
  std::vector<pid_t> found;
  for (const std::uint32_t member : members_) found.push_back(job_->process(member));
  return found;
}

std::chrono::nanoseconds Group::processor_time() const {
  std::chrono::nanoseconds all{0};
  for (const std::uint32_t r : ranks_here()) {
    clockid_t clock = 0;
    timespec used{};
    if (clock_getcpuclockid(process(r), &clock) != 0 || clock_gettime(clock, &used) != 0) continue;
    all += std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }
  return all;
}

std::vector<int> Group::pidfds() const {
  std::vector<int> found;
  for (const std::uint32_t member : members_) found.push_back(job_->pidfd(member));
  return found;
}

Status Group::attach(Extent control) {
  Result<Mapping> mapping = job_->map(control);
  if (!mapping.ok()) return give_up_unmapped(control, mapping.error());
  control_ = mapping.value();
  control_.populate(0, control_.size());
  extents_.push_back(control);
  own_ = &block(rank_);
  bells_.open(reinterpret_cast<std::uint8_t*>(&block(size())), rank_, size());
  return {};
}

void Group::choose_waiting() {
  const std::size_t here =
      job_->hosts().several() ? job_->hosts().all()[job_->hosts().own()].ranks.size() : job_->size();
  wait_policy_ = std::make_shared<WaitPolicy>(wait_mode_, here <= job_->cores(), job_->apart());
}

Group::~Group() {
  if (own_ == nullptr || !job_->here()) return;
  store(own_->left, kLeft, std::memory_order_release);
  // Ranks that have ended, or have never mapped this memory, do not leave, so others do it for them.
  std::uint64_t leaving = 1;
  const std::vector<std::uint32_t> dead = job_->dead(members_);
  for (const std::uint32_t r : ranks_here()) {
    std::uint64_t missing = std::ranges::find(dead, members_[r]) == dead.end() ? kAbsent : load(block(r).left);
    if (missing != 0 && missing != kAbsent) continue;
    if (std::atomic_ref(block(r).left).compare_exchange_strong(missing, kEnded, std::memory_order_relaxed)) ++leaving;
  }
  // The last rank of the host to leave frees the memory. acq_rel: the other ranks have finished using it before.
  const std::uint64_t left = std::atomic_ref(header().left).fetch_add(leaving, std::memory_order_acq_rel) + leaving;
  tell_hosts();
  if (left != ranks_here().size()) return;
  for (std::uint32_t pair = 0; pair < size() * size(); ++pair) {
    const Pipe& pipe = pipe_of(pair / size(), pair % size());
    if (pipe.offset != 0) job_->discard({pipe.offset, pipe.bytes});
  }
  for (std::uint64_t at = load(header().offers.more); at != 0;) {
    const auto* const offers = reinterpret_cast<const Offers*>(job_->place(at, sizeof(Offers)));
    if (offers == nullptr) break;
    const std::uint64_t next = load(offers->more);
    job_->discard({at, whole_pages(sizeof(Offers))});
    at = next;
  }
  const bool spans = placement_.several();
  for (const Extent& e : extents_) {
    if (!spans || e.offset != extents_.front().offset) job_->discard(e);
  }
  // The thread of this host's leader frees the control memory of such a group.
  if (spans) store(header().released, 1, std::memory_order_release);
  tell_hosts();
}

Status Group::begin(const CallRecord& record) {
  if (!job_->here()) return Diagnostic(ErrorCode::UsedAfterFork, "");
  if (load(header().given_up) != 0) return *given_up();
  ++sequence_;
  const auto core = static_cast<std::uint64_t>(sched_getcpu() + 1);
  if (core != core_) store(own_->core, core_ = core);
  if (const std::uint64_t waits = Progress::inside() ? 0 : 1; waits != waits_) store(own_->waits, waits_ = waits);
  const std::uint64_t packed = record.packed();
  chain_ = mix64(chain_ ^ packed) + mix64(record.count + mix64(record.program ^ chain_));
  own_->history[sequence_ % kHistory].write({sequence_, chain_, packed, record.count, record.program});
  store(own_->begun, sequence_, std::memory_order_release);
  return {};
}

bool Group::all_here() const {
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (load(block(r).begun) < sequence_) return false;
  }
  return true;
}

bool Group::shares_core() const {
  const auto core = static_cast<std::uint64_t>(sched_getcpu() + 1);
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (r != rank_ && load(block(r).core) == core) return true;
  }
  return false;
}

bool Group::spread(std::chrono::steady_clock::time_point now) {
  constexpr auto kBetween = std::chrono::milliseconds(10);
  if (now < next_spread_) return false;
  next_spread_ = now + kBetween;
  const auto size = static_cast<std::uint32_t>(ranks_here().size());
  std::uint32_t here = 0;
  std::uint32_t number = 0;  // of this rank among those of the host
  for (const std::uint32_t r : ranks_here()) {
    here += load(block(r).core) == core_ ? 1 : 0;
    number += r < rank_ ? 1 : 0;
  }
  if (here <= 1) return false;
  const Cores own = Cores::own();
  const std::uint32_t cores = own.count();
  if (cores <= 1 || here <= (size + cores - 1) / cores) return false;
  if (!share_) share_ = own.share_of({number, size});
  const std::uint64_t core = core_ - 1;
  if (core >= Cores::kMost || (share_->words[core / 64] >> core % 64 & 1U) != 0) return false;
  share_->keep_here();
  own.keep_here();
  return true;
}

std::optional<Cores> Group::gather() {
  const Cores own = Cores::own();
  if (!half_ || half_->second != own) {
    // Different jobs should not choose the same half, and the ranks of one must.
    const auto which = static_cast<std::uint32_t>(process(ranks_here().front()));
    half_.emplace(own.share_of({which % 2, 2}), own);
  }
  if (own.count() <= 1) return {};
  half_->first.keep_here();
  return own;
}

void Group::finish() { store(own_->finished, sequence_, std::memory_order_release); }

Status Group::note(const CallRecord& record, std::string_view text) {
  GC3_CHECK(check());
  own_->note.say(sequence_ + 1, text);
  GC3_CHECK(begin(record));
  finish();
  bells_.ring();
  tell_hosts();
  return {};
}

Status Group::check() const {
  // A rank announces that it gives up before it frees memory, so data that was read before this check was valid.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (load(header().given_up) != 0) return *given_up();
  return {};
}

Result<std::vector<Group::Payload>> Group::exchange(const Payload& own, const Interrupted& interrupted) {
  // Two turns are enough: a rank that writes the turn after the next one knows that all have read this one.
  const std::uint64_t number = ++exchanges_;
  RankBlock::Turn& mine = own_->turns[number % 2];
  for (std::size_t i = 0; i < own.size(); ++i) store(mine.payload[i], own[i]);
  store(mine.chain, chain_);
  store(mine.number, number, std::memory_order_release);
  bells_.ring();
  tell_hosts();
  std::vector<Payload> all(size());
  Waiter waiter(*this, interrupted);
  waiter.post_nothing();
  waiter.is_of_small_call();
  bool same = true;
  for (std::uint32_t r = 0; r < size(); ++r) {
    const RankBlock::Turn& turn = block(r).turns[number % 2];
    while (load(turn.number, std::memory_order_acquire) < number) {
      // This rank has posted, so no rank waits for it, and it can await all others at once.
      const auto missing = [&] {
        std::uint32_t ranks = 0;
        for (std::uint32_t q = r; q < size(); ++q) {
          if (load(block(q).turns[number % 2].number) < number) ranks |= Bells::bit(q);
        }
        return ranks != 0 ? ranks : Bells::kAnybody;
      };
      if (!waiter.rest(missing)) return std::move(waiter.problem());
    }
    waiter.renew();
    for (std::size_t i = 0; i < own.size(); ++i) all[r][i] = load(turn.payload[i]);
    same = same && load(turn.chain) == chain_;
  }
  // An exchange has no tag, so the histories are compared.
  if (!same) {
    if (const std::optional<Diagnostic> differs = difference()) return give_up(*differs);
  }
  return all;
}

Result<Extent> Group::take_shared(std::uint64_t bytes, const std::string& purpose, const Interrupted& interrupted) {
  Payload offer{};
  std::optional<Diagnostic> problem;
  if (rank_ == ranks_here().front()) {
    Result<Extent> extent = job_->take(bytes, purpose);
    if (extent.ok()) {
      offer = {extent.value().offset, extent.value().bytes};
    } else {
      problem = std::move(extent.error());
    }
  }
  GC3_ASSIGN(const std::vector<Payload> offers, exchange(offer, interrupted));
  if (problem) return *problem;
  const Payload& mine = offers[ranks_here().front()];
  for (const std::vector<std::uint32_t>& ranks : placement_.ranks_of) {
    if (offers[ranks.front()][1] != 0) continue;
    if (mine[1] != 0 && rank_ == ranks_here().front()) job_->discard({mine[0], mine[1]});
    return Diagnostic(ErrorCode::OutOfMemory, std::to_string(bytes) + " bytes of shared memory for " + purpose +
                                                  ": refused to " + who(ranks.front()) + ", which says why");
  }
  return Extent{mine[0], mine[1]};
}

Result<Mapping> Group::allocate(std::uint64_t bytes, const std::string& purpose, const Interrupted& interrupted) {
  std::vector<std::uint64_t> parts(size());
  for (const std::vector<std::uint32_t>& ranks : placement_.ranks_of) parts[ranks.front()] = whole_pages(bytes);
  return allocate(parts, purpose, interrupted);
}

Result<Mapping> Group::allocate(const std::vector<std::uint64_t>& parts, const std::string& purpose,
                                const Interrupted& interrupted) {
  std::uint64_t bytes = 0;
  std::uint64_t before = 0;
  for (const std::uint32_t r : ranks_here()) {
    bytes += parts[r];
    before += r < rank_ ? parts[r] : 0;
  }
  GC3_ASSIGN(const Extent extent, take_shared(bytes, purpose, interrupted));
  Result<Mapping> mapping = job_->map(extent);
  if (!mapping.ok()) return give_up(mapping.error());  // otherwise the others would wait for this rank
  Status status;
  if (parts[rank_] != 0) status = job_->reserve({extent.offset + before, parts[rank_]}, purpose);
  // No rank touches the part of another one before that one has it.
  GC3_ASSIGN(const std::vector<Payload> have, exchange({status.ok() ? 1U : 0U}, interrupted));
  if (std::ranges::all_of(have, [](const Payload& p) { return p[0] == 1; })) {
    extents_.push_back(extent);
    return mapping;
  }
  if (rank_ == ranks_here().front()) job_->discard(extent);
  if (!status.ok()) return std::move(status.error());
  return Diagnostic(ErrorCode::OutOfMemory, std::to_string(bytes) + " bytes of shared memory for " + purpose);
}

Result<std::unique_ptr<Group>> Group::split(std::optional<std::uint32_t> color, std::int64_t key,
                                            const Interrupted& interrupted) {
  GC3_CHECK(begin({CallKind::split}));
  const std::uint64_t said = color ? std::uint64_t{*color} + 1 : 0;
  GC3_ASSIGN(const std::vector<Payload> wishes, exchange({said, static_cast<std::uint64_t>(key)}, interrupted));
  std::vector<std::uint32_t> chosen;
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (said != 0 && wishes[r][0] == said) chosen.push_back(r);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [&](std::uint32_t a, std::uint32_t b) {
    return static_cast<std::int64_t>(wishes[a][1]) < static_cast<std::int64_t>(wishes[b][1]);
  });
  std::unique_ptr<Group> group;
  if (said != 0) {
    std::vector<std::uint32_t> members;
    for (const std::uint32_t r : chosen) members.push_back(members_[r]);
    const auto place = static_cast<std::uint32_t>(std::ranges::find(chosen, rank_) - chosen.begin());
    group = child(std::move(members), place, timeout_s_);
  }
  Payload offer{};
  std::optional<Diagnostic> problem;
  if (group != nullptr && group->ranks_here().front() == group->rank_) {
    Result<Extent> extent = job_->allocate(group->control_bytes(), "a communicator");
    if (extent.ok()) {
      offer = {extent.value().offset, extent.value().bytes};
      const std::array<std::uint64_t, 2> what{sequence_, said};
      const Id id =
          child_id({header().id[0], header().id[1]}, {reinterpret_cast<const char*>(what.data()), sizeof what});
      if (group->placement_.several()) {
        if (Status status = group->describe(extent.value(), id); !status.ok()) return give_up(status.error());
      }
    } else {
      problem = std::move(extent.error());
    }
  }
  GC3_ASSIGN(const std::vector<Payload> offers, exchange(offer, interrupted));
  const auto is_offered = [&](const std::vector<std::uint32_t>& ranks) {
    return offers[chosen[ranks.front()]][1] != 0;
  };
  const bool offered = group != nullptr && std::ranges::all_of(group->placement_.ranks_of, is_offered);
  const Extent own{offer[0], offer[1]};  // of a first rank
  Status attached;
  if (offered) {
    if (own.bytes != 0) attached = group->announce_to_leader(own);
    const Payload& mine = offers[chosen[group->ranks_here().front()]];
    if (attached.ok()) attached = group->attach({mine[0], mine[1]});
  } else if (own.bytes != 0) {
    job_->discard(own);
  }
  GC3_ASSIGN(const std::vector<Payload> met, exchange({attached.ok() ? 1U : 0U}, interrupted));
  finish();
  if (group == nullptr) return group;
  if (problem) return *problem;
  if (!offered) return Diagnostic(ErrorCode::OutOfMemory, "shared memory for a communicator");
  GC3_CHECK(attached);
  // Who could not attach has said why before it said so.
  if (!std::ranges::all_of(chosen, [&](std::uint32_t r) { return met[r][0] == 1; })) GC3_CHECK(group->check());
  group->choose_waiting();
  return group;
}

}  // namespace gc3::core
