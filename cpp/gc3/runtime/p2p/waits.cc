// Waiting for requests, the reasons why a wait ends, and the end of a messenger.
#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "gc3/runtime/p2p/inside.h"

namespace gc3::p2p {
namespace {

using Awaits = core::Group::Awaits;
using Presence = core::Group::Presence;

constexpr std::uint32_t kOthersPerLook = 1024;
constexpr std::uint32_t kSigns = 32;  // looks for the sign of an answer between two looks at everything
// Looks for the message of a receive before it becomes a request: about a microsecond, longer than most answers take.
constexpr std::uint32_t kFirstSigns = 2000;
constexpr std::size_t kMostTags = 8;  // named in one message

std::string in_seconds(double s) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g s", s);
  return text.data();
}

bool all_done(std::span<Request* const> requests) {
  return std::ranges::all_of(requests, [](const Request* r) { return r->is_done(); });
}

// Grows with everything that happens to them.
std::uint64_t progress_of(std::span<Request* const> requests) {
  std::uint64_t sum = 0;
  for (const Request* r : requests) sum += r->moved + static_cast<std::uint64_t>(r->state) + (r->is_done() ? 1 : 0);
  return sum;
}

}  // namespace

Result<std::unique_lock<std::mutex>> Messenger::enter() {
  const auto open_here = [this]() -> Status {
    if (closing_) return Diagnostic(ErrorCode::CommunicatorClosed, "");
    return group_.job()->here() ? Status() : of_another_process();
  };
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    ++entering_;  // so that the group stays
    const Status status = open_here();
    if (status.ok()) lock.lock();  // in a fork, a thread that does not exist may have it
    --entering_;
    GC3_CHECK(status);
  }
  GC3_CHECK(open_here());
  return lock;
}

class Messenger::Watch : public core::Waiter::Check {
 public:
  Watch(Messenger& messenger, std::span<Request* const> requests, const WaitLimits& limits, bool withdraws)
      : messenger_(messenger), requests_(requests), limits_(limits), withdraws_(withdraws) {}
  ~Watch() {
    if (announced_) messenger_.group_.announce({});
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // The requests have moved.
  void renew() { since_.reset(); }
  // `idle_s`: since anything has moved, of these requests or others.
  Status look(double idle_s) override {
    Messenger& m = messenger_;
    if (!since_) {
      since_.emplace(Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(idle_s)));
    }
    const double waited_s = since_->waited_s();
    if (m.closing_ && m.inside_ != 0) {  // else it is close() that waits
      return Diagnostic(ErrorCode::CommunicatorClosed, "while a call was under way");
    }
    GC3_CHECK(m.look_at(requests_, limits_.interrupted));
    const auto late = std::ranges::find_if(requests_, [](const Request* r) { return !r->is_done(); });
    if (late == requests_.end()) return {};
    m.group_.announce(awaited(**late));
    announced_ = true;
    if (waited_s <= limits_.timeout_s.value_or(m.group_.timeout_s())) return {};
    const std::lock_guard lock(m.mutex_);
    Diagnostic reason = m.overdue(**late, waited_s);
    if (!limits_.timeout_s) return m.group_.give_up(reason);
    if (!withdraws_) return reason;
    for (Request* const r : requests_) {
      if (!r->is_done() && !m.withdraw(*r)) return m.group_.give_up(reason);  // a peer is at its buffer
    }
    return reason;
  }

 private:
  static Awaits awaited(const Request& request) {
    const bool sends = request.call.kind == Operation::Kind::send;
    return {sends ? Awaits::What::sent : Awaits::What::received, request.call.peer, request.call.tag,
            request.call.bytes};
  }

  Messenger& messenger_;
  std::span<Request* const> requests_;
  const WaitLimits& limits_;
  bool withdraws_;
  bool announced_ = false;
  std::optional<core::WaitClock> since_;  // when it was first seen that they do not move
};

Messenger::~Messenger() { close(); }

Status Messenger::send(const void* data, std::uint64_t bytes, std::uint32_t to, std::int32_t tag,
                       const WaitLimits& limits, std::uint32_t type) {
  const Operation operation = send_of(data, bytes, to, tag, type);
  Envelope sent;
  if (at_once(operation, sent)) return {};
  GC3_ASSIGN(auto lock, enter());
  GC3_CHECK(check(operation));
  Request request(operation);
  GC3_CHECK(begin(request));
  if (request.is_done()) return {};
  const Inside inside(*this);
  lock.unlock();
  Request* const one = &request;
  return complete({&one, 1}, limits, true);
}

Result<Envelope> Messenger::receive(void* data, std::uint64_t bytes, std::uint32_t source, std::int32_t tag,
                                    const WaitLimits& limits, std::uint32_t type) {
  const Operation operation = receive_of(data, bytes, source, tag, type);
  Envelope got;
  if (at_once(operation, got)) return got;
  GC3_ASSIGN(auto lock, enter());
  GC3_CHECK(check(operation));
  if (spins_ && source < in_.size() && source != rank_ && in_[source].pipe.is_open() && posted_.first() == nullptr) {
    // No longer than it takes to copy some records, so the lock is kept: to take it again would delay the message.
    // relaxed: it is only a sign.
    std::uint64_t& next = in_[source].pipe.next_word();
    for (std::uint32_t i = 0; i < kFirstSigns && word(next).load(std::memory_order_relaxed) == 0; ++i) continue;
    if (receive_at_once(operation, got)) return got;
  }
  Request request(operation);
  GC3_CHECK(begin(request));
  if (!request.is_done()) advance(&request);
  if (request.is_done() && request.ended.ok()) return request.got;
  const Inside inside(*this);
  lock.unlock();
  Request* const one = &request;
  GC3_CHECK(complete({&one, 1}, limits, true));
  return request.got;
}

Result<Whole> Messenger::receive_whole(std::uint32_t source, std::int32_t tag, const WaitLimits& limits,
                                       std::uint32_t type) {
  Operation operation = receive_of(nullptr, 0, source, tag, type);
  operation.whole = true;
  GC3_ASSIGN(auto lock, enter());
  GC3_CHECK(check(operation));
  Request request(operation);
  GC3_CHECK(begin(request));
  const Inside inside(*this);
  lock.unlock();
  Request* const one = &request;
  GC3_CHECK(complete({&one, 1}, limits, true));
  return Whole{request.got, std::move(request.memory)};
}

Result<std::vector<Envelope>> Messenger::run(std::span<const Operation> operations, const WaitLimits& limits) {
  std::deque<Request> requests;
  std::vector<Request*> all;
  Status status;
  std::optional<Inside> inside;
  {
    GC3_ASSIGN(const auto lock, enter());
    for (const Operation& operation : operations) GC3_CHECK(check(operation));
    inside.emplace(*this);
    // Receives first, so that no message has to be kept that one of them takes.
    for (const Operation& operation : operations) all.push_back(&requests.emplace_back(operation));
    for (const auto kind : {Operation::Kind::receive, Operation::Kind::send}) {
      for (Request* const r : all) {
        if (status.ok() && r->call.kind == kind) status = begin(*r);
      }
    }
    if (!status.ok()) {
      const Diagnostic reason = group_.give_up(status.error());  // others wait for what was not begun
      for (Request* const r : all) abandon(*r, reason);
      return reason;
    }
  }
  GC3_CHECK(complete(all, limits, true));
  std::vector<Envelope> got;
  for (const Request* r : all) got.push_back(r->got);
  return got;
}

// Without the lock, which other threads may need.
bool Messenger::shows_soon(const Sign& sign) {
  for (std::uint32_t i = 0; i < kSigns; ++i) {
    if (sign.shows()) return true;
  }
  return false;
}

// Where to look for the next step of the first of them that is not done. None: nowhere in particular.
std::optional<Messenger::Sign> Messenger::sign_for(std::span<Request* const> requests) {
  const auto found = std::ranges::find_if(requests, [](const Request* r) { return !r->is_done(); });
  if (found == requests.end()) return {};
  const Request& request = **found;
  const std::uint32_t peer = request.call.peer;
  if (peer == rank_ || peer == kAnySource) return {};
  if (request.state == Request::State::offered && request.slot != kNoSlot) {
    std::uint64_t& state = out_[peer].pipe.slot_word(request.slot);
    return Sign{&request, &state, word(state).load(std::memory_order_relaxed)};
  }
  if (!in_[peer].pipe.is_open()) return {};
  return Sign{&request, &in_[peer].pipe.next_word(), 0};
}

Status Messenger::complete(std::span<Request* const> requests, const WaitLimits& limits, bool withdraws) {
  Watch watch(*this, requests, limits, withdraws);
  HostSleep sleep(hosts_.get(), [this] { return arm(); });
  core::Waiter waiter(group_, limits.interrupted, &watch, {}, &sleep);
  std::uint64_t progress = 0;
  std::uint32_t others = 0;  // times that only other requests have moved
  const Request* const until = requests.size() == 1 ? requests.front() : nullptr;
  std::optional<Sign> sign;
  while (!all_done(requests)) {
    bool moved = false;
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) {
      moved = advance(until);
      if (moved) {
        const std::uint64_t now = progress_of(requests);
        if (std::exchange(progress, now) != now) watch.renew();
      } else {
        sign = sign_for(requests);
      }
    }
    Status status;
    if (moved) {
      waiter.renew();
      if (++others % kOthersPerLook == 0) status = watch.look(0);
    } else if (!all_done(requests) && !(sign && shows_soon(*sign)) && !waiter.rest()) {
      status = std::move(waiter.problem());
    }
    if (status.ok()) continue;
    const std::lock_guard lock(mutex_);
    // A wait for a request that was started leaves it alone, unless nothing will ever come of it.
    if (!withdraws && group_.check().ok()) return status;
    for (Request* const r : requests) abandon(*r, status.error());
  }
  for (const Request* r : requests) {
    GC3_CHECK(r->ended);
  }
  return {};
}

// Whether the requests can still go well.
Status Messenger::look_at(std::span<Request* const> requests, const core::Interrupted& interrupted) {
  GC3_CHECK(group_.check());
  if (interrupted && interrupted()) {
    return group_.give_up(Diagnostic(ErrorCode::Aborted, group_.who(rank_) + " was interrupted"));
  }
  for (Request* const r : requests) {
    if (r->is_done()) continue;
    std::optional<Diagnostic> reason = loss(*r);
    const std::lock_guard lock(mutex_);
    if (!reason) reason = broken(*r);
    if (!reason) continue;
    while (advance()) continue;  // what it has sent before counts
    if (!r->is_done()) return group_.give_up(*reason);
  }
  return {};
}

std::string Messenger::wish(const Request& request) const {
  const Operation& call = request.call;
  const std::string tag = call.tag == kAnyTag ? "any tag" : "tag " + std::to_string(call.tag);
  if (call.kind == Operation::Kind::send) {
    return "to send " + std::to_string(call.bytes) + " bytes with " + tag + " to " + group_.who(call.peer);
  }
  return "for a message with " + tag + " from " + (call.peer == kAnySource ? "any rank" : group_.who(call.peer));
}

std::optional<Diagnostic> Messenger::loss(const Request& request) const {
  const auto gone = [&](std::uint32_t rank, Presence presence) {
    const char* const how = presence == Presence::left ? " has closed the communicator" : " has ended";
    return Diagnostic(ErrorCode::RankLost,
                      group_.who(rank) + how + "; " + group_.who(rank_) + " waits " + wish(request));
  };
  if (request.call.peer != kAnySource) {
    if (request.call.peer == rank_) return {};
    const Presence presence = group_.presence(request.call.peer);
    if (presence == Presence::here) return {};
    return gone(request.call.peer, presence);
  }
  // From any rank: one that has closed has done its part, but somebody has to be left.
  std::uint32_t left = 0;
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    if (r == rank_) continue;
    const Presence presence = group_.presence(r);
    if (presence == Presence::ended) return gone(r, presence);
    left += presence == Presence::left ? 1 : 0;
  }
  if (left == 0 || left + 1 < group_.size()) return {};
  return Diagnostic(ErrorCode::RankLost,
                    "all other ranks have closed the communicator; " + group_.who(rank_) + " waits " + wish(request));
}

// "0, 1, 2" if rank 1, for which this rank 0 waits, waits for rank 2, and that one for rank 0; empty if there is no
// such circle of three or more ranks. It is only told when the time is over: until then another thread of one of these
// ranks may receive, which nobody can rule out.
std::string Messenger::circle_through(std::uint32_t peer) const {
  std::string circle = std::to_string(rank_);
  for (std::uint32_t length = 1; length <= group_.size() && peer < group_.size(); ++length) {
    if (peer == rank_) return length > 2 ? circle : "";
    circle += ", " + std::to_string(peer);
    const Awaits theirs = group_.awaits(peer);
    if (theirs.what == Awaits::What::nothing) return "";
    peer = theirs.peer;
  }
  return "";
}

Diagnostic Messenger::overdue(const Request& request, double waited_s) const {
  Diagnostic reason(ErrorCode::Timeout,
                    group_.who(rank_) + " has waited " + in_seconds(waited_s) + " " + wish(request));
  const std::uint32_t peer = request.call.peer;
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    const bool awaited = r != rank_ && (r == peer || peer == kAnySource);
    if (awaited && !group_.runs(r)) reason.note(group_.who(r) + " has been stopped");
  }
  if (peer == kAnySource) return reason;
  if (apart(peer)) {
    const std::string why = hosts_->why_not(peer, request.call.kind == Operation::Kind::send);
    if (!why.empty()) reason.note(why);
  }
  const Awaits theirs = peer == rank_ || apart(peer) ? Awaits{} : group_.awaits(peer);
  if (theirs.what != Awaits::What::nothing) {
    const Request other(theirs.what == Awaits::What::sent ? send_of(nullptr, theirs.bytes, theirs.peer, theirs.tag)
                                                          : receive_of(nullptr, theirs.bytes, theirs.peer, theirs.tag));
    if (theirs.peer < group_.size() || theirs.peer == kAnySource) {
      reason.note(group_.who(peer) + " waits " + wish(other));
    }
    if (request.call.kind == Operation::Kind::send && theirs.what == Awaits::What::sent && theirs.peer == rank_) {
      reason.note("each waits for the other to receive: sendrecv, batch or isend send and receive at once");
    } else if (const std::string circle = circle_through(peer); !circle.empty()) {
      reason.note("these ranks wait for each other in a circle: " + circle +
                  "; sendrecv, batch or isend send and receive at once");
    }
  } else if (peer != rank_ && !apart(peer)) {
    reason.note(group_.who(peer) + " is in no send or receive");
  }
  const auto& held = in_[peer].held.by_tag();
  if (request.call.kind == Operation::Kind::receive && !held.empty()) {
    std::string tags;
    std::size_t named = 0;
    for (const auto& [tag, _] : held) {
      if (++named <= kMostTags) tags += (named == 1 ? "" : ", ") + std::to_string(tag);
    }
    reason.note("messages of that rank that nobody has received have the tags " + tags +
                (named > kMostTags ? ", ..." : ""));
  }
  return reason;
}

bool Messenger::withdraw(Request& request) {
  const Operation& call = request.call;
  if (call.kind == Operation::Kind::receive) return posted_.erase(request);
  if (call.peer == rank_) {
    return in_[rank_].held.erase_if([&](const Held& held) { return held.own == &request; }) != 0;
  }
  Outgoing& out = out_[call.peer];
  if (request.state == Request::State::waiting) return std::erase(out.waiting, &request) != 0;
  if (request.state != Request::State::offered) return false;
  if (apart(call.peer)) return out.offers.erase(request.serial) != 0;  // whoever wants it later is told
  if (request.slot == kNoSlot) return false;
  if (!out.pipe.withdraw_slot(request.slot, request.serial)) return false;
  std::erase(out.in_slots, &request);
  out.offers.erase(request.serial);
  free_slot(out, request);
  return true;
}

void Messenger::abandon(Request& request, const Diagnostic& problem) {
  if (request.is_done()) return;
  if (!withdraw(request)) {
    const auto is_it = [&](const auto& entry) { return entry.second == &request; };
    std::erase_if(reading_, [&](const Reading& reading) { return reading.request == &request; });
    for (Incoming& in : in_) {
      if (in.into == &request) in.into = nullptr;
      std::erase_if(in.wanted, is_it);
    }
    for (Outgoing& out : out_) {
      std::erase_if(out.offers, is_it);
      std::erase(out.in_slots, &request);
      std::erase(out.wanted, &request);
    }
  }
  fail(request, problem);
}

}  // namespace gc3::p2p
