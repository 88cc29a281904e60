#include "gc3/runtime/p2p/messenger.h"

#include <algorithm>
#include <utility>

#include "gc3/base/after_fork.h"
#include "gc3/base/copy_bytes.h"
#include "gc3/base/threads.h"
#include "gc3/runtime/p2p/limits.h"

namespace gc3::p2p {
namespace {

// Whether a message is one record without a head.
bool is_short(const Operation& call) { return call.bytes <= kPayload && call.type < kTypesInWord; }
// What it takes of the ring, at most.
std::uint64_t room_of(const Operation& call) {
  return is_short(call) ? length_of(call.bytes) : (call.bytes / kPayload + 1) * length_of(kMostInRecord);
}
constexpr std::uint64_t kHeadRoom = length_of(sizeof(MessageHead));

}  // namespace

Messenger::Messenger(core::Group& group, std::unique_ptr<HostPipes> hosts)
    : group_(group), rank_(group.rank()), hosts_(std::move(hosts)), out_(group.size()), in_(group.size()) {
  const core::SingleCopy& single = group.single_copy();
  reads_ = single.reads;
  // Where reading is never faster it is still right for messages that the pipe has no room for.
  eager_ = single.reads ? std::min(std::max(single.thresholds.moved, kLeastRead) - 1, kMostEager) : kMostEager;
  least_read_ = single.thresholds.moved;
  const core::CopyTime& longest = single.times.back();
  const bool both_are_faster = longest.read > std::max(longest.put, longest.take);
  beyond_caches_ = both_are_faster ? 8 * single.thresholds.copied_slot : Thresholds::kNever;
  const core::WaitPolicy& policy = group.wait_policy();
  using core::WaitMode;
  spins_ = policy.mode() == WaitMode::spin || (policy.mode() == WaitMode::automatic && policy.core_each());
  for (std::uint32_t r = 0; r < group.size(); ++r) bells_.push_back(group.is_here(r) ? &group.doorbell(r) : nullptr);
  group.job()->pending().add(*this);
}

Diagnostic Messenger::of_another_process() const { return gc3::of_another_process(group_.process(rank_)); }

bool Messenger::at_once(const Operation& operation, Envelope& got) {
  // Another thread may hold the lock for long, and a caller in Python holds the interpreter.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || closing_ || !group_.job()->here() || !check(operation).ok()) return false;
  return do_at_once(operation, got);
}

Status Messenger::check(const Operation& operation) const {
  GC3_CHECK(group_.check());
  const bool receives = operation.kind == Operation::Kind::receive;
  if (operation.peer >= group_.size() && !(receives && operation.peer == kAnySource)) {
    return Diagnostic(ErrorCode::RankOutOfRange,
                      group_.who(rank_) + (receives ? " receives from rank " : " sends to rank ") +
                          std::to_string(operation.peer) + " of " + std::to_string(group_.size()) + " ranks");
  }
  if (operation.tag < 0 && !(receives && operation.tag == kAnyTag)) {
    return Diagnostic(ErrorCode::BadArgument,
                      "tag " + std::to_string(operation.tag) + "; expected a number from 0 to 2147483647");
  }
  if (operation.data == nullptr && operation.bytes != 0) {
    return Diagnostic(ErrorCode::BadBuffer, "a null pointer for " + std::to_string(operation.bytes) + " bytes");
  }
  return {};
}

Status Messenger::begin(Request& request) {
  if (request.call.kind == Operation::Kind::send) return begin_send(request);
  begin_receive(request);
  return {};
}

Status Messenger::begin_send(Request& request) {
  const Operation& call = request.call;
  if (call.peer == rank_) {
    const MessageHead head{call.tag, 0, call.bytes, 0, call.type};
    Held message{head, 0, false, 0, &request, {}};
    if (Request* const receive = find_posted(rank_, call.tag)) {
      posted_.erase(*receive);
      take(rank_, message, *receive);
      return {};
    }
    message.order = ++arrivals_;
    if (own_held_ + cost_of(call.bytes) <= kMostHeld) {
      own_held_ += cost_of(call.bytes);
      message.data = std::make_unique<std::uint8_t[]>(call.bytes);
      copy_bytes(message.data.get(), call.data, call.bytes);
      message.own = nullptr;
      message.arrived = call.bytes;
      finish(request);
    }
    in_[rank_].held.push(std::move(message));
    return {};
  }
  GC3_CHECK(open(call.peer));
  Outgoing& out = out_[call.peer];
  // Behind earlier messages to that rank, or at once.
  if (!out.waiting.empty() || !leave(out, request)) {
    out.waiting.push_back(&request);
  } else {
    ring(call.peer);
  }
  if (apart(call.peer)) carry_on();
  return {};
}

Status Messenger::open(std::uint32_t to) {
  Outgoing& out = out_[to];
  if (out.pipe.is_open()) return {};
  if (apart(to)) {
    if (!carrier_.joinable()) {
      GC3_ASSIGN(carrier_, start_thread("the thread of messages to other hosts", [this] { carry(); }));
    }
    GC3_ASSIGN(out.pipe, hosts_->open(to));
    out.eager = kMostEager;
    return {};
  }
  out.eager = eager_;
  const std::uint64_t ring = ring_among(group_.size());
  GC3_ASSIGN(out.memory, group_.open_pipe(to, Pipe::bytes_with(ring)));
  out.pipe = PipeSender(out.memory.data(), ring);
  for (std::uint32_t slot = kSlots; slot > 0; --slot) out.free_slots.push_back(slot - 1);
  return {};
}

void Messenger::begin_receive(Request& request) {
  if (!find_held(request)) {
    posted_.push_back(request);
  } else if (request.got.peer != rank_) {
    ring(request.got.peer);
  }
}

bool Messenger::do_at_once(const Operation& call, Envelope& got) {
  if (call.peer >= in_.size() || call.peer == rank_) return false;
  if (call.kind == Operation::Kind::receive) return receive_at_once(call, got);
  got = {call.peer, call.tag, call.bytes};
  return send_at_once(call);
}

// Sends a short message to another rank if nothing is in its way. Then no request is needed.
bool Messenger::send_at_once(const Operation& call) {
  Outgoing& out = out_[call.peer];
  if (!out.pipe.is_open() || !out.waiting.empty() || call.bytes > out.eager || !is_short(call)) return false;
  const std::uint64_t cost = cost_of(call.bytes);
  if (!out.pipe.afford(cost, kMostHeld) || !out.pipe.has_room(length_of(call.bytes))) return false;
  out.pipe.spend(cost);
  out.pipe.put(RecordKind::message, call.tag, call.data, call.bytes, call.type);
  ring(call.peer);
  if (apart(call.peer)) carry_on();
  return true;
}

// Receives a short message of another rank that is the next one in its pipe, if no other request or message is before
// it.
bool Messenger::receive_at_once(const Operation& call, Envelope& got) {
  Incoming& in = in_[call.peer];
  if (!in.pipe.is_open() || !in.held.empty() || posted_.first() != nullptr) return false;
  const Record record = in.pipe.look();
  if (record.kind != RecordKind::message || record.bytes > call.bytes) return false;
  if (record.type != call.type || (call.tag != record.tag && call.tag != kAnyTag)) return false;
  copy_bytes(call.data, record.data, record.bytes);
  got = {call.peer, record.tag, record.bytes};
  in.pipe.take(cost_of(record.bytes));
  in.pipe.next(record);
  ring(call.peer);
  return true;
}

// Whether the message has left this rank's hands: as a copy in the pipe, or as an offer.
bool Messenger::leave(Outgoing& out, Request& request) {
  const Operation& call = request.call;
  // Behind one that the receiver has yet to take, copying takes no longer: it is done while the receiver is busy.
  const std::uint64_t eager = spins_ && !out.offers.empty() ? kMostEager : out.eager;
  if (call.bytes <= eager && out.pipe.afford(cost_of(call.bytes), kMostHeld)) {
    if (!out.pipe.has_room(room_of(call))) return false;
    out.pipe.spend(cost_of(call.bytes));
    if (is_short(call)) {
      out.pipe.put(RecordKind::message, call.tag, call.data, call.bytes, call.type);
    } else {
      out.pipe.put(RecordKind::first, {call.tag, 0, call.bytes, 0, call.type}, call.data,
                   std::min(call.bytes, kPayload));
      for (std::uint64_t sent = kPayload; sent < call.bytes; sent += kPayload) {
        out.pipe.put(RecordKind::more, call.tag, call.data + sent, std::min(call.bytes - sent, kPayload));
      }
    }
    finish(request);
    return true;
  }
  if (out.offers.size() >= kMostOffers || !out.pipe.has_room(kHeadRoom)) return false;
  request.serial = ++out.serial;
  request.state = Request::State::offered;
  out.offers[request.serial] = &request;
  if (!out.free_slots.empty()) {
    request.slot = out.free_slots.back();
    out.free_slots.pop_back();
    out.in_slots.push_back(&request);
    const std::uint64_t offset = group_.job()->offset_of(call.data);
    out.pipe.fill_slot(
        request.slot, request.serial,
        offset != core::Window::kNowhere ? Slot::kShared | offset : reinterpret_cast<std::uintptr_t>(call.data));
  }
  out.pipe.put(RecordKind::offer, {call.tag, request.slot, call.bytes, request.serial, call.type});
  return true;
}

// After the offer has ended.
void Messenger::free_slot(Outgoing& out, Request& request) {
  if (request.slot == kNoSlot) return;
  out.free_slots.push_back(request.slot);
  request.slot = kNoSlot;
}

bool Messenger::settle_offers(Outgoing& out) {
  bool moved = false;
  for (std::size_t i = 0; i < out.in_slots.size();) {
    Request& request = *out.in_slots[i];
    const bool wanted = out.pipe.answer_slot(request.slot, request.serial);
    if (!wanted && !out.pipe.slot_is_done(request.slot, request.serial)) {
      ++i;
      continue;
    }
    out.in_slots[i] = out.in_slots.back();
    out.in_slots.pop_back();
    if (wanted) {
      request.state = Request::State::wanted;
      out.wanted.push_back(&request);
    } else {
      out.offers.erase(request.serial);
      free_slot(out, request);
      finish(request);
    }
    moved = true;
  }
  return moved;
}

void Messenger::arrive_want(std::uint32_t source, const MessageHead& head) {
  Outgoing& out = out_[source];
  const auto found = out.offers.find(head.serial);
  if (found == out.offers.end()) {
    if (apart(source) && head.bytes != 0) out.replies.push_back({RecordKind::gone, head});
    return;
  }
  Request& request = *found->second;
  out.offers.erase(found);
  std::erase(out.in_slots, &request);
  std::erase(out.wanted, &request);
  free_slot(out, request);
  request.moved = 0;
  if (head.bytes == 0) {
    finish(request);
    return;
  }
  request.state = Request::State::wanted;
  out.wanted.push_back(&request);
}

bool Messenger::send_wanted(std::uint32_t to) {
  Outgoing& out = out_[to];
  const bool far = apart(to);
  bool moved = false;
  // The receiver did not wait for the next part: it reads the message. Noticed without room too, which a receiver that
  // has all may never make.
  const auto offer_again = [&] {
    Request& request = *out.wanted.front();
    out.wanted.pop_front();
    request.moved = 0;
    request.state = Request::State::offered;
    out.in_slots.push_back(&request);
    moved = true;
  };
  while (!out.wanted.empty()) {
    Request& request = *out.wanted.front();
    const bool in_slot = request.slot != kNoSlot;
    if (in_slot && !out.pipe.slot_is_sending(request.slot, request.serial)) {
      offer_again();
      continue;
    }
    if (!(far ? hosts_->has_room(to) : out.pipe.has_room(length_of(kMostInRecord)))) break;
    const std::uint64_t bytes = std::min(request.call.bytes - request.moved, far ? kHostPart : kPayload);
    const bool last = request.moved + bytes == request.call.bytes;
    if (in_slot && last && !out.pipe.end_slot(request.slot, request.serial)) {
      offer_again();
      continue;
    }
    const MessageHead head{request.call.tag, request.slot, request.call.bytes, request.serial};
    const std::uint8_t* const data = request.call.data + request.moved;
    if (far) {
      hosts_->send_part(to, head, data, bytes);
    } else {
      out.pipe.put(RecordKind::part, head, data, bytes);
    }
    request.moved += bytes;
    moved = true;
    if (!last) continue;
    out.wanted.pop_front();
    if (in_slot) {
      out.offers.erase(request.serial);
      free_slot(out, request);
    }
    finish(request);
  }
  return moved;
}

bool Messenger::pump(std::uint32_t to) {
  Outgoing& out = out_[to];
  bool moved = !out.in_slots.empty() && settle_offers(out);
  if (in_[to].taken - in_[to].told >= kMostHeld / 8) {
    in_[to].told = in_[to].taken;
    out.replies.push_back({RecordKind::taken, {0, kNoSlot, in_[to].told, 0}});
  }
  if (!out.replies.empty()) {
    if (const Status opened = open(to); !opened.ok()) {
      group_.give_up(opened.error());
      return moved;
    }
  }
  for (; !out.replies.empty() && out.pipe.has_room(kHeadRoom); out.replies.pop_front()) {
    out.pipe.put(out.replies.front().kind, out.replies.front().head);
    moved = true;
  }
  // Before parts of long messages, which would use every slot.
  if (apart(to)) moved |= hosts_->push(to);
  moved |= send_wanted(to);
  while (!out.waiting.empty() && leave(out, *out.waiting.front())) {
    out.waiting.pop_front();
    moved = true;
  }
  return (apart(to) && hosts_->push(to)) || moved;
}

void Messenger::finish(Request& request) {
  const std::shared_ptr<Request> own = std::move(request.self);
  if (started_.erase(request) && started_.first() == nullptr) {
    begun_.store(false, std::memory_order_relaxed);
    group_.job()->pending().ended();
  }
  // release: its result and its buffer; nothing touches it afterwards.
  request.done.store(true, std::memory_order_release);
}

void Messenger::fail(Request& request, const Diagnostic& problem) {
  request.ended = problem;
  finish(request);
}

}  // namespace gc3::p2p
