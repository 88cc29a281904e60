// What a messenger does for ranks on other hosts: nobody there can read this rank's memory, so it has to carry what it
// has sent, also while it makes no call, and before it ends.
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "gc3/runtime/p2p/inside.h"
#include "gc3/runtime/p2p/limits.h"

namespace gc3::p2p {
namespace {

// Between two looks of the carrier at connections that are being made, for which no descriptor wakes it.
constexpr std::chrono::milliseconds kLook{1};

}  // namespace

bool Messenger::drain_host(std::uint32_t source, const Request* until) {
  bool moved = false;
  while (until == nullptr || !until->is_done()) {
    const Record record = hosts_->look(source);
    if (record.kind == RecordKind::none) break;
    if (const std::string wrong = defect(source, record); !wrong.empty()) {
      hosts_->refuse(source, wrong);
    } else {
      arrive(source, record);
    }
    hosts_->next(source);
    if (record.kind == RecordKind::bye) hosts_->confirm(source);
    moved = true;
  }
  return moved;
}

// What no messenger sends, because it would break the order of messages or use up this rank's memory; empty: nothing.
std::string Messenger::defect(std::uint32_t source, const Record& record) const {
  const Incoming& in = in_[source];
  if (record.kind == RecordKind::skip || record.kind > RecordKind::bye) return "something else than messages";
  const std::string cut = "parts of messages that do not fit together";
  if (record.kind == RecordKind::message) return in.rest != 0 || record.bytes > kMostEager ? cut : "";
  if (record.kind == RecordKind::more) return record.bytes > in.rest ? cut : "";
  MessageHead head;
  if (record.bytes < sizeof head) return "a record of " + std::to_string(record.bytes) + " bytes without its head";
  std::memcpy(&head, record.data, sizeof head);
  const std::uint64_t bytes = record.bytes - sizeof head;
  if (record.kind == RecordKind::first) return in.rest != 0 || head.bytes > kMostEager || bytes > head.bytes ? cut : "";
  if (record.kind == RecordKind::offer) {
    if (head.slot != kNoSlot) return "an offer of memory that other hosts cannot read";
    return in.offered >= kMostOffersKept ? "more offers than may be kept" : "";
  }
  const Outgoing& out = out_[source];
  if (record.kind == RecordKind::taken && head.bytes > out.pipe.spent()) return "that it has taken more than was sent";
  return out.replies.size() > kMostOffersKept ? "wishes for messages that nobody has offered" : "";
}

// Whether nothing has arrived that was not looked at. Another thread that has the lock looks at it.
bool Messenger::arm() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return !lock.owns_lock() || hosts_->arm();
}

// Why a request will not be done although its peer is still there. Under the lock.
std::optional<Diagnostic> Messenger::broken(const Request& request) const {
  const std::uint32_t peer = request.call.peer;
  const bool any = peer == kAnySource;
  for (std::uint32_t r = any ? 0 : peer; r < (any ? group_.size() : peer + 1); ++r) {
    if (!apart(r)) continue;
    std::optional<Diagnostic> problem = hosts_->problem(r);
    if (problem && group_.presence(r) == core::Group::Presence::here) return problem;
  }
  return {};
}

bool Messenger::has_unsent() const {
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    const Outgoing& out = out_[r];
    if (!apart(r) || !out.pipe.is_open()) continue;
    const bool waits = !out.waiting.empty() || !out.offers.empty() || !out.wanted.empty() || !out.replies.empty();
    if (waits || !hosts_->has_left(r)) return true;
  }
  return false;
}

void Messenger::carry_on() {
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    if (apart(r)) hosts_->push(r);
  }
  if (has_unsent() && !closing_) unsent_changed_.notify_one();
}

void Messenger::carry() {
  HostSleep sleep(hosts_.get(), [this] { return arm(); });
  std::unique_lock lock(mutex_);
  for (;;) {
    unsent_changed_.wait(lock, [this] { return carrier_ends_ || has_unsent(); });
    if (carrier_ends_ || !group_.check().ok()) return;
    // Whoever waits in a call looks more often.
    const bool others = inside_ != 0;
    if (!others) advance();
    lock.unlock();
    if (others) {
      std::this_thread::sleep_for(kLook);
    } else {
      sleep.sleep(kLook);
    }
    lock.lock();
  }
}

// What another host has not taken lies in this process, which may end after that.
class Messenger::HandOver : public core::Waiter::Check {
 public:
  HandOver(Messenger& messenger, const core::Interrupted& interrupted)
      : messenger_(messenger), interrupted_(interrupted) {}
  Status look(double waited_s) override {
    core::Group& group = messenger_.group_;
    GC3_CHECK(group.check());
    const bool ends = waited_s > group.timeout_s() || (interrupted_ && interrupted_());
    return ends ? Status(Diagnostic(ErrorCode::Timeout, "")) : Status();
  }

 private:
  Messenger& messenger_;
  const core::Interrupted& interrupted_;
};

void Messenger::hand_over(const core::Interrupted& interrupted) {
  if (hosts_ == nullptr || !group_.check().ok()) return;
  HandOver watch(*this, interrupted);
  HostSleep sleep(hosts_.get(), [this] { return arm(); });
  core::Waiter waiter(group_, interrupted, &watch, {}, &sleep);
  const auto still_waits_for = [this](std::uint32_t rank) {
    const Outgoing& out = out_[rank];
    if (!apart(rank) || !out.pipe.is_open() || (out.replies.empty() && hosts_->has_all(rank))) return false;
    return group_.presence(rank) == core::Group::Presence::here && !hosts_->problem(rank);
  };
  for (bool first = true;; first = false) {
    bool moved = false;
    bool waits = false;
    {
      const std::lock_guard lock(mutex_);
      for (std::uint32_t r = 0; first && r < group_.size(); ++r) {
        if (apart(r) && out_[r].pipe.is_open()) out_[r].replies.push_back({RecordKind::bye, {}});
      }
      moved = advance();
      for (std::uint32_t r = 0; r < group_.size() && !waits; ++r) waits = still_waits_for(r);
    }
    if (!waits) return;
    if (moved) {
      waiter.renew();
    } else if (!waiter.rest()) {
      return;
    }
  }
}

}  // namespace gc3::p2p
