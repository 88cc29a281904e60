// Requests that are started and waited for later, the functions that are called when they are done, and the end of a
// messenger.
#include <chrono>
#include <utility>

#include "gc3/base/threads.h"
#include "gc3/runtime/p2p/inside.h"
#include "gc3/runtime/p2p/recycled.h"

namespace gc3::p2p {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{10};
// A look at a line that the sender is writing to takes both ranks a transfer, about as long as starting a receive. Then
// the line has one message instead of several.
constexpr std::uint32_t kReceivesPerLook = 16;

thread_local const Messenger* here = nullptr;  // whose requests this thread notifies

}  // namespace

bool Messenger::notifies_here() const { return here == this; }

Result<std::shared_ptr<Request>> Messenger::start(const Operation& operation,
                                                  std::function<void(const Request&)> notify, Envelope* got) {
  GC3_ASSIGN(const auto lock, enter());
  GC3_CHECK(check(operation));
  if (got != nullptr && do_at_once(operation, *got)) return std::shared_ptr<Request>();
  if (notify && !lane_.joinable()) {
    GC3_ASSIGN(lane_, start_thread("the thread that tells of messages", [this] { serve(); }));
  }
  auto request = std::allocate_shared<Request>(Recycled<Request>(), operation);
  GC3_CHECK(begin(*request));
  if (!request->is_done() && (operation.kind == Operation::Kind::send || posted_.first() == request.get() ||
                              ++unlooked_ >= kReceivesPerLook)) {
    unlooked_ = 0;
    advance(request.get());
  }
  if (!request->is_done()) {
    request->self = request;
    if (started_.first() == nullptr) {
      begun_.store(true, std::memory_order_relaxed);
      group_.job()->pending().begun();
    }
    started_.push_back(*request);
    if (hosts_ != nullptr) carry_on();
  }
  if (notify) {
    request->since = core::WaitClock();
    request->notify = std::move(notify);
    to_notify_.push_back(request);
    to_notify_changed_.notify_one();
  }
  return request;
}

Status Messenger::wait(Request& request, const WaitLimits& limits) {
  if (request.is_done()) return request.status();
  GC3_ASSIGN(auto lock, enter());
  advance(&request);
  if (request.is_done()) return request.status();
  const Inside inside(*this);
  lock.unlock();
  Request* const one = &request;
  return complete({&one, 1}, limits, false);
}

bool Messenger::test(Request& request) {
  if (request.is_done()) return true;
  std::optional<Inside> inside;
  {
    const auto lock = enter();
    if (!lock.ok()) return request.is_done();
    inside.emplace(*this);
    advance(&request);
    if (request.is_done()) return true;
    const Clock::time_point now = Clock::now();
    if (now - looked_ < kBetweenLooks) return false;
    looked_ = now;
  }
  Request* const one = &request;
  const Status status = look_at({&one, 1}, {});
  if (status.ok()) return request.is_done();
  const std::lock_guard lock(mutex_);
  abandon(request, status.error());
  return true;
}

// relaxed: who started them sees them, and a thread that waits looks again.
bool Messenger::go_on() {
  if (!begun_.load(std::memory_order_relaxed) || !group_.job()->here()) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && advance();
}

bool Messenger::busy() {
  const std::lock_guard lock(mutex_);
  return started_.first() != nullptr;
}

// The requests of the lane are looked at one by one: each has its own time and its own end.
class Messenger::LaneWatch : public core::Waiter::Check {
 public:
  explicit LaneWatch(Messenger& messenger) : messenger_(messenger) {}

  Status look(double) override {
    Messenger& m = messenger_;
    std::vector<std::shared_ptr<Request>> all;
    {
      const std::lock_guard lock(m.mutex_);
      all = m.to_notify_;
    }
    for (const auto& r : all) {
      Request* const one = r.get();
      const double waited_s = r->since.waited_s();
      Status status = m.look_at({&one, 1}, {});
      const std::lock_guard lock(m.mutex_);
      if (status.ok() && waited_s > m.group_.timeout_s() && !r->is_done()) {
        status = m.group_.give_up(m.overdue(*r, waited_s));
      }
      if (!status.ok()) m.abandon(*r, status.error());
    }
    return {};
  }

 private:
  Messenger& messenger_;
};

void Messenger::serve() {
  here = this;
  LaneWatch watch(*this);
  const core::Interrupted never;
  std::unique_lock lock(mutex_);
  for (;;) {
    to_notify_changed_.wait(lock, [this] { return closing_ || !to_notify_.empty(); });
    if (to_notify_.empty()) return;
    core::Waiter waiter(group_, never, &watch);
    std::vector<std::shared_ptr<Request>> done;
    while (done.empty()) {
      advance();
      for (const auto& r : to_notify_) {
        if (r->is_done()) done.push_back(r);
      }
      std::erase_if(to_notify_, [](const auto& r) { return r->is_done(); });
      lock.unlock();
      if (done.empty()) static_cast<void>(waiter.rest());  // the watch ends no wait
      for (const auto& r : done) std::exchange(r->notify, {})(*r);
      lock.lock();
    }
  }
}

void Messenger::close(const core::Interrupted& interrupted) {
  {
    const std::lock_guard lock(mutex_);
    if (closing_.exchange(true)) return;
  }
  while (inside_ != 0 || entering_ != 0)
    std::this_thread::sleep_for(std::chrono::microseconds(100));  // their waits end
  std::vector<std::shared_ptr<Request>> held;
  std::vector<Request*> sends;
  {
    const std::lock_guard lock(mutex_);
    for (Request* r = started_.first(); r != nullptr; r = decltype(started_)::after(*r)) held.push_back(r->self);
    for (const auto& r : held) {
      if (r->call.kind == Operation::Kind::send) {
        sends.push_back(r.get());
      } else {
        abandon(*r, Diagnostic(ErrorCode::CommunicatorClosed, "while " + group_.who(rank_) + " waited " + wish(*r)));
      }
    }
  }
  // How they end, whoever has their handles can ask.
  if (!sends.empty()) static_cast<void>(complete(sends, {{}, interrupted}, true));
  to_notify_changed_.notify_one();
  if (lane_.joinable()) lane_.join();
  if (carrier_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      carrier_ends_ = true;
    }
    unsent_changed_.notify_one();
    carrier_.join();
  }
  group_.job()->pending().remove(*this);
  hand_over(interrupted);
  const std::lock_guard lock(mutex_);
  hosts_.reset();
}

}  // namespace gc3::p2p
