#include "gc3/runtime/p2p/messenger.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gc3::p2p {
namespace {

// Of what a rank has sent another unasked and that one has not asked for, messages themselves and keeping them.
constexpr std::uint64_t kMostHeld = std::uint64_t{1} << 20U;
constexpr std::uint64_t kKeeping = 128;
// Offers to one rank, each of which that rank keeps in mind.
constexpr std::size_t kMostOffers = std::size_t{1} << 16U;
// A message of more bytes than this would leave few for others.
constexpr std::uint64_t kMostEager = 8 * kPayload;
constexpr std::uint64_t kLeastRead = std::uint64_t{16} << 10U;

std::uint64_t cost_of(std::uint64_t bytes) { return bytes + kKeeping; }
std::uint64_t cells_of(std::uint64_t bytes) { return bytes == 0 ? 1 : (bytes + kPayload - 1) / kPayload; }

bool suits(const Operation& receive, std::uint32_t source, std::int32_t tag) {
  return (receive.peer == source || receive.peer == kAnySource) && (receive.tag == tag || receive.tag == kAnyTag);
}

}  // namespace

Messenger::Messenger(core::Group& group) : group_(group), rank_(group.rank()), out_(group.size()), in_(group.size()) {
  const core::SingleCopy& single = group.single_copy();
  reads_ = single.reads;
  // Where reading is never faster it is still right for messages that the pipe has no room for.
  const std::uint64_t least_read = single.reads ? std::max(single.thresholds.moved, kLeastRead) : kMostEager;
  eager_ = std::min(least_read, kMostEager);
}

Diagnostic Messenger::of_another_process() const {
  return Diagnostic(ErrorCode::UsedAfterFork,
                    "the communicator belongs to process " + std::to_string(group_.process(rank_)));
}

Status Messenger::check(const Operation& operation) const {
  if (!group_.job()->here()) return of_another_process();
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
    const CellHead head{call.tag, 0, call.bytes, 0};
    Held message{head, 0, false, 0, &request, {}};
    if (Request* const receive = take_posted(rank_, call.tag)) {
      take(rank_, message, *receive);
      return {};
    }
    message.order = ++arrivals_;
    if (own_held_ + cost_of(call.bytes) <= kMostHeld) {
      own_held_ += cost_of(call.bytes);
      message.data = std::make_unique<std::uint8_t[]>(call.bytes);
      if (call.bytes != 0) std::memcpy(message.data.get(), call.data, call.bytes);
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
  if (!out.waiting.empty() || !leave(out, request)) out.waiting.push_back(&request);
  return {};
}

Status Messenger::open(std::uint32_t to) {
  Outgoing& out = out_[to];
  if (out.pipe.is_open()) return {};
  GC3_ASSIGN(core::Mapping memory, group_.open_pipe(to, sizeof(Pipe)));
  out.pipe = PipeSender(std::move(memory));
  for (std::uint32_t slot = kSlots; slot > 0; --slot) out.free_slots.push_back(slot - 1);
  return {};
}

void Messenger::begin_receive(Request& request) {
  if (find_held(request)) return;
  posted_.push_back(&request);
}

// Whether the message has left this rank's hands: as a copy in the pipe, or as an offer.
bool Messenger::leave(Outgoing& out, Request& request) {
  const Operation& call = request.call;
  if (call.bytes <= eager_ && out.pipe.afford(cost_of(call.bytes), kMostHeld)) {
    if (!out.pipe.has_room(cells_of(call.bytes))) return false;
    out.pipe.spend(cost_of(call.bytes));
    CellKind kind = CellKind::message;
    do {
      const std::uint64_t bytes = std::min(call.bytes - request.moved, kPayload);
      out.pipe.put(kind, {call.tag, 0, call.bytes, 0}, call.data + request.moved, bytes);
      request.moved += bytes;
      kind = CellKind::more;
    } while (request.moved < call.bytes);
    finish(request);
    return true;
  }
  if (out.offers.size() >= kMostOffers || !out.pipe.has_room(1)) return false;
  request.serial = ++out.serial;
  request.state = Request::State::offered;
  out.offers[request.serial] = &request;
  if (!out.free_slots.empty()) {
    request.slot = out.free_slots.back();
    out.free_slots.pop_back();
    out.in_slots.push_back(&request);
    Slot& slot = out.pipe.slot(request.slot);
    const std::uint64_t offset = group_.job()->offset_of(call.data);
    slot.address =
        offset != core::Window::kNowhere ? Slot::kShared | offset : reinterpret_cast<std::uintptr_t>(call.data);
    // relaxed: the cell's stamp publishes it.
    word(slot.word).store(Slot::pack(request.serial, SlotState::open), std::memory_order_relaxed);
  }
  out.pipe.put(CellKind::offer, {call.tag, request.slot, call.bytes, request.serial}, nullptr, 0);
  return true;
}

// After the offer has ended.
void Messenger::free_slot(Outgoing& out, Request& request) {
  if (request.slot == kNoSlot) return;
  word(out.pipe.slot(request.slot).word).store(Slot::pack(request.serial, SlotState::free), std::memory_order_relaxed);
  out.free_slots.push_back(request.slot);
  request.slot = kNoSlot;
}

bool Messenger::settle_offers(Outgoing& out) {
  bool moved = false;
  for (std::size_t i = 0; i < out.in_slots.size();) {
    Request& request = *out.in_slots[i];
    // acquire: the receiver has read the message before it says so.
    if (word(out.pipe.slot(request.slot).word).load(std::memory_order_acquire) !=
        Slot::pack(request.serial, SlotState::done)) {
      ++i;
      continue;
    }
    out.in_slots[i] = out.in_slots.back();
    out.in_slots.pop_back();
    out.offers.erase(request.serial);
    free_slot(out, request);
    finish(request);
    moved = true;
  }
  return moved;
}

void Messenger::arrive_want(Outgoing& out, const CellHead& head) {
  const auto found = out.offers.find(head.serial);
  if (found == out.offers.end()) return;
  Request& request = *found->second;
  out.offers.erase(found);
  std::erase(out.in_slots, &request);
  free_slot(out, request);
  if (head.bytes == 0) {
    finish(request);
    return;
  }
  request.state = Request::State::wanted;
  out.wanted.push_back(&request);
}

bool Messenger::send_wanted(Outgoing& out) {
  bool moved = false;
  while (!out.wanted.empty() && out.pipe.has_room(1)) {
    Request& request = *out.wanted.front();
    const std::uint64_t bytes = std::min(request.call.bytes - request.moved, kPayload);
    out.pipe.put(CellKind::part, {request.call.tag, kNoSlot, request.call.bytes, request.serial},
                 request.call.data + request.moved, bytes);
    request.moved += bytes;
    moved = true;
    if (request.moved < request.call.bytes) continue;
    out.wanted.pop_front();
    finish(request);
  }
  return moved;
}

bool Messenger::pump(std::uint32_t to) {
  Outgoing& out = out_[to];
  bool moved = !out.in_slots.empty() && settle_offers(out);
  if (!out.wants.empty()) {
    if (const Status opened = open(to); !opened.ok()) {
      group_.give_up(opened.error());
      return moved;
    }
  }
  for (; !out.wants.empty() && out.pipe.has_room(1); out.wants.pop_front()) {
    out.pipe.put(CellKind::want, out.wants.front(), nullptr, 0);
    moved = true;
  }
  moved |= send_wanted(out);
  while (!out.waiting.empty() && leave(out, *out.waiting.front())) {
    out.waiting.pop_front();
    moved = true;
  }
  return moved;
}

bool Messenger::advance() {
  bool moved = false;
  for (std::uint32_t r = 0; r < in_.size(); ++r) {
    if (r == rank_) continue;
    moved |= drain(r);
    moved |= pump(r);
  }
  return (!reading_.empty() && read_some()) || moved;
}

bool Messenger::drain(std::uint32_t source) {
  Incoming& in = in_[source];
  if (!in.pipe.is_open()) {
    Result<core::Mapping> memory = group_.find_pipe(source);
    if (!memory.ok()) {
      group_.give_up(memory.error());
      return false;
    }
    if (memory.value().size() < sizeof(Pipe)) return false;
    in.pipe = PipeReceiver(std::move(memory).value());
  }
  bool moved = false;
  CellKind kind{};
  while (const Cell* const cell = in.pipe.look(kind)) {
    const CellHead head = cell->head;
    switch (kind) {
      case CellKind::message:
        arrive(source, head, cell->payload);
        break;
      case CellKind::more:
        arrive_more(in, cell->payload);
        break;
      case CellKind::part:
        arrive_part(in, head, cell->payload);
        break;
      case CellKind::offer:
        arrive_offer(source, head);
        break;
      case CellKind::want:
        arrive_want(out_[source], head);
        break;
    }
    in.pipe.next();
    if (in.pipe.owes()) in.pipe.tell();
    moved = true;
  }
  if (moved) in.pipe.tell();
  return moved;
}

void Messenger::arrive(std::uint32_t source, const CellHead& head, const std::uint8_t* payload) {
  Incoming& in = in_[source];
  in.rest = head.bytes;
  in.into = nullptr;
  in.keeps = nullptr;
  if (head.bytes > kMostEager) return;  // no messenger sends that; nor what follows
  if (Request* const request = take_posted(source, head.tag)) {
    in.pipe.take(cost_of(head.bytes));
    if (fits(source, head, *request)) {
      request->state = Request::State::incoming;
      in.into = request;
    }
  } else {
    Held& held = in.held.push({head, ++arrivals_, false, 0, nullptr, {}});
    held.data = std::make_unique_for_overwrite<std::uint8_t[]>(head.bytes);
    in.keeps = &held;
  }
  arrive_more(in, payload);
}

void Messenger::arrive_more(Incoming& in, const std::uint8_t* payload) {
  const std::uint64_t bytes = std::min(in.rest, kPayload);
  in.rest -= bytes;
  if (in.into != nullptr) {
    Request& request = *in.into;
    if (bytes != 0) std::memcpy(request.call.data + request.moved, payload, bytes);
    request.moved += bytes;
    if (in.rest != 0) return;
    in.into = nullptr;
    finish(request);
  } else if (in.keeps != nullptr) {
    Held& held = *in.keeps;
    if (bytes != 0) std::memcpy(held.data.get() + held.arrived, payload, bytes);
    held.arrived += bytes;
    if (in.rest == 0) in.keeps = nullptr;
  }
}

void Messenger::arrive_part(Incoming& in, const CellHead& head, const std::uint8_t* payload) {
  const auto found = in.wanted.find(head.serial);
  if (found == in.wanted.end()) return;
  Request& request = *found->second;
  const std::uint64_t bytes = std::min(request.got.bytes - request.moved, kPayload);
  std::memcpy(request.call.data + request.moved, payload, bytes);
  request.moved += bytes;
  if (request.moved != request.got.bytes) return;
  in.wanted.erase(found);
  finish(request);
}

void Messenger::arrive_offer(std::uint32_t source, const CellHead& head) {
  Incoming& in = in_[source];
  if (head.slot >= kSlots && head.slot != kNoSlot) return;
  if (Request* const request = find_posted(source, head.tag)) {
    if (take_offer(source, head, *request)) std::erase(posted_, request);
    return;
  }
  if (head.slot != kNoSlot && ++in.withdrawable > kSlots) {
    // Each slot has one offer; others have been withdrawn.
    in.withdrawable -= static_cast<std::uint32_t>(in.held.erase_if([&](const Held& held) {
      const std::uint64_t open = Slot::pack(held.head.serial, SlotState::open);
      return held.offered && held.head.slot != kNoSlot &&
             word(in.pipe.slot(held.head.slot).word).load(std::memory_order_relaxed) != open;
    }));
  }
  in.held.push({head, ++arrivals_, true, 0, nullptr, {}});
}

// The first receive that waits for such a message.
Request* Messenger::find_posted(std::uint32_t source, std::int32_t tag) const {
  const auto found = std::ranges::find_if(posted_, [&](const Request* r) { return suits(r->call, source, tag); });
  return found == posted_.end() ? nullptr : *found;
}

// The same, which waits no more.
Request* Messenger::take_posted(std::uint32_t source, std::int32_t tag) {
  const auto found = std::ranges::find_if(posted_, [&](const Request* r) { return suits(r->call, source, tag); });
  if (found == posted_.end()) return nullptr;
  Request* const taken = *found;
  posted_.erase(found);
  return taken;
}

// Gives the request the first message held that suits it.
bool Messenger::find_held(Request& request) {
  const bool any = request.call.peer == kAnySource;
  for (;;) {
    std::uint32_t source = 0;
    Held* first = nullptr;
    for (std::uint32_t s = any ? 0 : request.call.peer; s < (any ? in_.size() : request.call.peer + 1); ++s) {
      Held* const here = in_[s].held.first(request.call.tag);
      if (here == nullptr || (first != nullptr && here->order > first->order)) continue;
      source = s;
      first = here;
    }
    if (first == nullptr) return false;
    if (first->offered && first->head.slot != kNoSlot) --in_[source].withdrawable;
    const bool taken = take(source, *first, request);
    in_[source].held.pop(first->head.tag);
    if (taken) return true;
  }
}

// False: the sender has withdrawn it.
bool Messenger::take(std::uint32_t source, Held& held, Request& request) {
  Incoming& in = in_[source];
  if (held.offered) return take_offer(source, held.head, request);
  const bool fit = fits(source, held.head, request);
  if (source == rank_) {
    if (fit && held.head.bytes != 0) {
      std::memcpy(request.call.data, held.own != nullptr ? held.own->call.data : held.data.get(), held.head.bytes);
    }
    if (held.own != nullptr) {
      finish(*held.own);
    } else {
      own_held_ -= cost_of(held.head.bytes);
    }
    if (fit) finish(request);
    return true;
  }
  in.pipe.take(cost_of(held.head.bytes));
  in.pipe.tell();
  const bool arrives = in.keeps == &held;
  if (arrives) in.keeps = nullptr;  // the rest goes to the receive, or nowhere
  if (!fit) return true;
  if (held.arrived != 0) std::memcpy(request.call.data, held.data.get(), held.arrived);
  request.moved = held.arrived;
  if (arrives) {
    request.state = Request::State::incoming;
    in.into = &request;
  } else {
    finish(request);
  }
  return true;
}

// False: the sender has withdrawn it.
bool Messenger::take_offer(std::uint32_t source, const CellHead& head, Request& request) {
  request.serial = head.serial;
  if (head.slot == kNoSlot) {
    if (!fits(source, head, request) || head.bytes == 0) {
      out_[source].wants.push_back({head.tag, kNoSlot, 0, head.serial});
      if (!request.problem) finish(request);
    } else {
      want(source, request);
    }
    return true;
  }
  std::atomic_ref<std::uint64_t> state = word(in_[source].pipe.slot(head.slot).word);
  std::uint64_t open = Slot::pack(head.serial, SlotState::open);
  // acquire: the address is that of this offer.
  if (!state.compare_exchange_strong(open, Slot::pack(head.serial, SlotState::taken), std::memory_order_acquire)) {
    return false;
  }
  if (!fits(source, head, request)) {
    state.store(Slot::pack(head.serial, SlotState::done), std::memory_order_relaxed);
    return true;
  }
  request.slot = head.slot;
  request.state = Request::State::reading;
  reading_.push_back({&request, source});
  return true;
}

// Asks the sender to send an offered message in cells.
void Messenger::want(std::uint32_t source, Request& request) {
  request.moved = 0;
  request.state = Request::State::wanted;
  in_[source].wanted[request.serial] = &request;
  out_[source].wants.push_back({request.got.tag, kNoSlot, request.got.bytes, request.serial});
}

// Whether the message fits the receive, which fails otherwise.
bool Messenger::fits(std::uint32_t source, const CellHead& head, Request& request) {
  request.got = {source, head.tag, head.bytes};
  if (head.bytes <= request.call.bytes) return true;
  fail(request, Diagnostic(ErrorCode::Truncated, group_.who(source) + " has sent " + std::to_string(head.bytes) +
                                                     " bytes with tag " + std::to_string(head.tag) + ", and " +
                                                     group_.who(rank_) + " receives at most " +
                                                     std::to_string(request.call.bytes)));
  return false;
}

void Messenger::finish(Request& request) {
  // release: its result and its buffer; nothing touches it afterwards.
  request.done.store(true, std::memory_order_release);
}

void Messenger::fail(Request& request, const Diagnostic& problem) {
  request.problem = problem;
  finish(request);
}

}  // namespace gc3::p2p
