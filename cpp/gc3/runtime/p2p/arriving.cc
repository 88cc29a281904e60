// What comes from other ranks: records, messages that nobody has asked for yet, and the receives that get them.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "gc3/base/copy_bytes.h"
#include "gc3/base/guarded.h"
#include "gc3/runtime/p2p/limits.h"
#include "gc3/runtime/p2p/messenger.h"

namespace gc3::p2p {
namespace {

bool suits(const Operation& receive, std::uint32_t source, std::int32_t tag) {
  return (receive.peer == source || receive.peer == kAnySource) && (receive.tag == tag || receive.tag == kAnyTag);
}

// `other`: that of the message, where it differs.
std::string type_named(std::uint64_t type, std::uint64_t other = kObject) {
  const auto has = [](std::uint64_t t) { return t != 0 && t < kTypesInWord; };
  if (type == kObject) return "an object";
  if (type != 0 && type <= model::kDataTypes.size()) return std::string(model::kDataTypes[type - 1].name);
  return has(other) ? "a type that GC3 does not have" : "another type that GC3 does not have";
}

}  // namespace

bool Messenger::advance(const Request* until) {
  bool moved = false;
  const Status status = guarded([&]() -> Status {
    moved = hosts_ != nullptr && hosts_->progress();
    for (std::uint32_t r = 0; r < in_.size(); ++r) {
      if (r == rank_) continue;
      bool here = apart(r) ? drain_host(r, until) : drain(r, until);
      here |= pump(r);
      if (here) ring(r);
      moved |= here;
    }
    moved |= !reading_.empty() && read_some();
    return {};
  });
  if (!status.ok()) group_.give_up(status.error());  // messages may be lost
  return moved;
}

bool Messenger::find_pipe(std::uint32_t source) {
  Incoming& in = in_[source];
  if (in.pipe.is_open()) return true;
  Result<core::Mapping> memory = group_.find_pipe(source);
  if (!memory.ok()) {
    group_.give_up(memory.error());
    return false;
  }
  const std::uint64_t ring = ring_among(group_.size());
  if (memory.value().size() < Pipe::bytes_with(ring)) return false;
  in.memory = std::move(memory).value();
  in.pipe = PipeReceiver(in.memory.data(), ring);
  return true;
}

bool Messenger::drain(std::uint32_t source, const Request* until) {
  Incoming& in = in_[source];
  if (!find_pipe(source)) return false;
  bool moved = false;
  // What comes after the end of that request stays in the pipe, where a later receive finds it without a copy.
  while (until == nullptr || !until->is_done()) {
    const Record record = in.pipe.look();
    if (record.kind == RecordKind::none) break;
    arrive(source, record);
    in.pipe.next(record);
    moved = true;
  }
  return moved;
}

// So much of what a rank has sent unasked has been given to its receiver.
void Messenger::taken(std::uint32_t source, std::uint64_t cost) {
  if (apart(source)) {
    in_[source].taken += cost;
  } else {
    in_[source].pipe.take(cost);
  }
}

void Messenger::arrive(std::uint32_t source, const Record& record) {
  Incoming& in = in_[source];
  if (record.kind == RecordKind::message) {
    arrive_first(source, {record.tag, 0, record.bytes, 0, record.type}, record.data, record.bytes);
    return;
  }
  if (record.kind == RecordKind::more) {
    arrive_more(in, record.data, record.bytes);
    return;
  }
  MessageHead head;
  if (record.bytes < sizeof head) return;  // no messenger sends that
  std::memcpy(&head, record.data, sizeof head);
  const std::uint8_t* const data = record.data + sizeof head;
  const std::uint64_t bytes = record.bytes - sizeof head;
  switch (record.kind) {
    case RecordKind::first:
      arrive_first(source, head, data, bytes);
      break;
    case RecordKind::part:
      arrive_part(in, head, data, bytes);
      break;
    case RecordKind::offer:
      arrive_offer(source, head);
      break;
    case RecordKind::want:
      arrive_want(source, head);
      break;
    case RecordKind::taken:
      if (apart(source)) hosts_->take_back(source, head.bytes);
      break;
    case RecordKind::gone:
      arrive_gone(in, head);
      break;
    default:
      break;
  }
}

void Messenger::arrive_first(std::uint32_t source, const MessageHead& head, const std::uint8_t* data,
                             std::uint64_t bytes) {
  Incoming& in = in_[source];
  in.rest = head.bytes;
  in.into = nullptr;
  in.keeps = nullptr;
  if (head.bytes > kMostEager) return;  // no messenger sends that; nor what follows
  in.unasked += cost_of(head.bytes);
  if (apart(source) && in.unasked - in.taken > kMostHeld) {
    in.rest = 0;
    hosts_->refuse(source, "more unasked messages than may be kept");
    return;
  }
  if (Request* const request = find_posted(source, head.tag)) {
    posted_.erase(*request);
    taken(source, cost_of(head.bytes));
    if (fits(source, head, *request)) {
      request->state = Request::State::incoming;
      in.into = request;
    }
  } else {
    Held& held = in.held.push({head, ++arrivals_, false, 0, nullptr, {}});
    held.data = std::make_unique_for_overwrite<std::uint8_t[]>(head.bytes);
    in.keeps = &held;
  }
  arrive_more(in, data, bytes);
}

void Messenger::arrive_more(Incoming& in, const std::uint8_t* data, std::uint64_t bytes) {
  bytes = std::min(in.rest, bytes);
  in.rest -= bytes;
  if (in.into != nullptr) {
    Request& request = *in.into;
    copy_bytes(request.call.data + request.moved, data, bytes);
    request.moved += bytes;
    if (in.rest != 0) return;
    in.into = nullptr;
    finish(request);
  } else if (in.keeps != nullptr) {
    Held& held = *in.keeps;
    copy_bytes(held.data.get() + held.arrived, data, bytes);
    held.arrived += bytes;
    if (in.rest == 0) in.keeps = nullptr;
  }
}

void Messenger::arrive_part(Incoming& in, const MessageHead& head, const std::uint8_t* data, std::uint64_t bytes) {
  ++in.parts;
  const auto found = in.wanted.find(head.serial);
  if (found == in.wanted.end()) return;
  Request& request = *found->second;
  if (head.slot != request.slot) return;  // asked for in the slot, and then by a record
  bytes = std::min(request.got.bytes - request.moved, bytes);
  copy_bytes(request.call.data + request.moved, data, bytes);
  request.moved += bytes;
  if (request.moved != request.got.bytes) return;
  in.wanted.erase(found);
  std::erase_if(reading_, [&](const Reading& reading) { return reading.request == &request; });
  finish(request);
}

// The sender has withdrawn what the receive has asked for: it waits again, before those that came later.
void Messenger::arrive_gone(Incoming& in, const MessageHead& head) {
  const auto found = in.wanted.find(head.serial);
  if (found == in.wanted.end()) return;
  Request& request = *found->second;
  in.wanted.erase(found);
  request.state = Request::State::waiting;
  if (!find_held(request)) posted_.push_front(request);
}

void Messenger::arrive_offer(std::uint32_t source, const MessageHead& head) {
  Incoming& in = in_[source];
  if (head.slot != kNoSlot && head.slot >= kSlots) return;
  if (Request* const request = find_posted(source, head.tag)) {
    take_offer(source, head, *request);
    return;
  }
  if (head.slot != kNoSlot && ++in.withdrawable > kSlots) {
    // Each slot has one offer; others have been withdrawn.
    in.withdrawable -= static_cast<std::uint32_t>(in.held.erase_if([&](const Held& held) {
      return held.offered && held.head.slot != kNoSlot && !in.pipe.slot_is_open(held.head.slot, held.head.serial);
    }));
  }
  in.held.push({head, ++arrivals_, true, 0, nullptr, {}});
  in.offered += apart(source) ? 1 : 0;
}

// The first receive that waits for such a message.
Request* Messenger::find_posted(std::uint32_t source, std::int32_t tag) const {
  for (Request* r = posted_.first(); r != nullptr; r = decltype(posted_)::after(*r)) {
    if (suits(r->call, source, tag)) return r;
  }
  return nullptr;
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
    if (first->offered && apart(source)) --in_[source].offered;
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
      copy_bytes(request.call.data, held.own != nullptr ? held.own->call.data : held.data.get(), held.head.bytes);
    }
    if (held.own != nullptr) {
      finish(*held.own);
    } else {
      own_held_ -= cost_of(held.head.bytes);
    }
    if (fit) finish(request);
    return true;
  }
  taken(source, cost_of(held.head.bytes));
  const bool arrives = in.keeps == &held;
  if (arrives) in.keeps = nullptr;  // the rest goes to the receive, or nowhere
  if (!fit) return true;
  copy_bytes(request.call.data, held.data.get(), held.arrived);
  request.moved = held.arrived;
  if (arrives) {
    request.state = Request::State::incoming;
    in.into = &request;
  } else {
    finish(request);
  }
  return true;
}

// False: the sender has withdrawn it, and the request waits on.
bool Messenger::take_offer(std::uint32_t source, const MessageHead& head, Request& request) {
  Incoming& in = in_[source];
  if (head.slot != kNoSlot && !in.pipe.take_slot(head.slot, head.serial)) return false;
  posted_.erase(request);
  request.serial = head.serial;
  const bool same = head.type == request.call.type;  // else the sender ends with the group, and is told why
  if (head.slot == kNoSlot) {
    const bool fit = fits(source, head, request);
    if (fit && head.bytes != 0) {
      want(source, request);
      return true;
    }
    if (same) out_[source].replies.push_back({RecordKind::want, {head.tag, kNoSlot, 0, head.serial}});
    if (fit) finish(request);
    return true;
  }
  if (!fits(source, head, request)) {
    if (same) in.pipe.finish_slot(head.slot, head.serial);
    return true;
  }
  request.slot = head.slot;
  request.state = Request::State::reading;
  // Where messages take longer to read than to copy, the sender gets the time to send it in records. Also if it has
  // offered others, or if the message is read from memory and not from a cache: reading takes only this rank's core,
  // while records take both cores at once.
  const bool both =
      spins_ && (head.bytes >= beyond_caches_ || in.withdrawable != 0 || !in.wanted.empty() ||
                 std::ranges::any_of(reading_, [&](const Reading& reading) { return reading.source == source; }));
  Reading& reading = reading_.emplace_back(Reading{&request, source});
  if (reads_ && (head.bytes < least_read_ || both) && (in.pipe.address(head.slot) & Slot::kShared) == 0) {
    reading.parts = in.parts;
    reading.asked = std::chrono::steady_clock::now();
    in.wanted[head.serial] = &request;
    in.pipe.ask_slot(head.slot, head.serial);
  }
  return true;
}

// Asks the sender to send an offered message in cells.
void Messenger::want(std::uint32_t source, Request& request) {
  request.moved = 0;
  request.slot = kNoSlot;
  request.state = Request::State::wanted;
  in_[source].wanted[request.serial] = &request;
  out_[source].replies.push_back({RecordKind::want, {request.got.tag, kNoSlot, request.got.bytes, request.serial}});
}

// Whether the message fits the receive, which fails otherwise. Elements of another type are a mistake of both ranks, so
// the group is given up: the sender of a short message has gone on. A request that has failed belongs to its caller
// again, who may free it at once.
bool Messenger::fits(std::uint32_t source, const MessageHead& head, Request& request) {
  request.got = {source, head.tag, head.bytes};
  if (head.type != request.call.type) {
    Diagnostic reason(ErrorCode::CallsDiffer, "a message with tag " + std::to_string(head.tag) + ": " +
                                                  group_.who(source) + " sends " + type_named(head.type) + ", and " +
                                                  group_.who(rank_) + " receives " +
                                                  type_named(request.call.type, head.type));
    if (head.type != kObject && request.call.type != kObject) {
      reason.note("to move the bytes as they are, pass views of uint8 on both sides");
    }
    fail(request, group_.give_up(reason));
    return false;
  }
  if (request.call.whole) {
    request.memory.reset(new (std::nothrow) std::uint8_t[head.bytes]);
    request.call.data = request.memory.get();
    request.call.bytes = head.bytes;
    if (request.memory == nullptr) {
      fail(request, Diagnostic(ErrorCode::OutOfMemory,
                               std::to_string(head.bytes) + " bytes for a message of " + group_.who(source)));
      return false;
    }
  }
  if (head.bytes <= request.call.bytes) return true;
  fail(request, Diagnostic(ErrorCode::Truncated, group_.who(source) + " has sent " + std::to_string(head.bytes) +
                                                     " bytes with tag " + std::to_string(head.tag) + ", and " +
                                                     group_.who(rank_) + " receives at most " +
                                                     std::to_string(request.call.bytes)));
  return false;
}

}  // namespace gc3::p2p
