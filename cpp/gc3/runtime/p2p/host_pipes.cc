#include "gc3/runtime/p2p/host_pipes.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gc3/base/copy_bytes.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/random.h"
#include "gc3/base/sha256.h"
#include "gc3/transport/tcp.h"

namespace gc3::p2p {
namespace {

using core::Group;
using transport::Failure;
using transport::Inlet;
using transport::Outlet;
using transport::Transport;

// Of a connection. Half of them carry data while the credit for the others is under way.
constexpr std::uint32_t kLineSlots = 32;
constexpr std::uint64_t kLineRing = PipeSize::kRing / 4;      // what leaves it goes to the slots
constexpr std::uint64_t kLineSlot = std::uint64_t{1} << 16U;  // bytes
// A connection that has ended is an error of its own only if nobody has noticed by then that the rank or its host has.
constexpr auto kNoticed = std::chrono::milliseconds(3500);

}  // namespace

HostPipes::HostPipes(Group& group, std::vector<std::uint32_t> hosts)
    : group_(group), rank_(group.rank()), hosts_(std::move(hosts)), lines_(hosts_.size()), arrivals_(hosts_.size()) {}

Result<std::unique_ptr<HostPipes>> HostPipes::create(Group& group, Options options,
                                                     const core::Interrupted& interrupted) {
  const Group::Placement& placement = group.placement();
  if (options.hosts.empty()) options.hosts = placement.host_of;
  if (std::ranges::all_of(options.hosts, [&](auto h) { return h == options.hosts.front(); })) {
    return std::unique_ptr<HostPipes>();
  }
  if (!options.make) {
    const std::string host =
        placement.several() ? placement.hosts[placement.host_of[group.rank()]].address : "127.0.0.1";
    options.make = [host](std::uint32_t number, const std::string& secret) -> Result<std::unique_ptr<Transport>> {
      GC3_ASSIGN(std::unique_ptr<Transport> tcp, transport::Tcp::create(number, host, secret));
      return tcp;
    };
  }
  GC3_CHECK(group.begin({core::CallKind::counts}));
  Group::Payload drawn{};
  const Status random = draw_random(drawn);
  GC3_ASSIGN(const auto tokens, group.exchange(drawn, interrupted));
  GC3_CHECK(random);
  const std::string_view token(reinterpret_cast<const char*>(tokens.front().data()), sizeof(Group::Payload));
  // Known to the ranks of this communicator only, and another one than that of its programs' connections.
  const std::string secret(as_text(hmac_sha256(group.job()->key(), "messages " + std::string(token))));
  std::unique_ptr<HostPipes> made(new HostPipes(group, std::move(options.hosts)));
  Result<std::unique_ptr<Transport>> receiving = options.make(group.rank(), secret);
  Result<std::unique_ptr<Transport>> sending = options.make(made->sender_number(group.rank()), secret);
  const bool good = receiving.ok() && sending.ok();
  // A rank without them takes part in the exchange, so that the others learn it.
  GC3_ASSIGN(made->addresses_, group.exchange_bytes(good ? receiving.value()->address() : "", interrupted));
  if (!receiving.ok()) return std::move(receiving.error());
  if (!sending.ok()) return std::move(sending.error());
  made->receiving_ = std::move(receiving).value();
  made->sending_ = std::move(sending).value();
  for (std::uint32_t r = 0; r < made->hosts_.size(); ++r) {
    if (made->addresses_[r].empty()) {
      return Diagnostic(ErrorCode::RankLost, group.who(r) + " cannot open connections to other hosts");
    }
    // Any rank may call. The end that receives never calls back, so any valid address serves.
    if (made->apart(r)) GC3_CHECK(made->receiving_->connect(made->sender_number(r), made->addresses_[r]));
  }
  made->receiving_->links()->open_inlets_by(
      [pipes = made.get()](std::uint32_t peer, transport::LinkId link) { return pipes->open_inlet(peer, link); });
  group.finish();
  return made;
}

// The first message of a rank.
Inlet* HostPipes::open_inlet(std::uint32_t sender, transport::LinkId link) {
  const std::uint32_t source = sender - sender_number(0);
  if (sender < sender_number(0) || link != link_between(source, rank_)) return nullptr;
  Arrivals& from = arrivals_[source];
  from.slots = std::make_unique_for_overwrite<std::uint8_t[]>(kLineSlots * kLineSlot);
  from.words.assign(std::size_t{2} * kLineSlots, 0);
  Inlet inlet;
  inlet.peer = sender;
  inlet.link = link;
  inlet.slots = kLineSlots;
  inlet.slot_bytes = inlet.slot_stride = kLineSlot;
  inlet.data = from.slots.get();
  inlet.arrivals = from.words.data();
  from.inlet = &receiving_->links()->add(std::move(inlet));
  return from.inlet;
}

Result<PipeSender> HostPipes::open(std::uint32_t to) {
  Line& line = lines_[to];
  GC3_CHECK(sending_->connect(to, addresses_[to]));
  // Of the ring only what is used takes memory.
  line.pipe = std::make_unique_for_overwrite<Pipe>();
  auto* const memory = reinterpret_cast<std::uint8_t*>(line.pipe.get());
  std::memset(memory, 0, Pipe::bytes_with(kWord));
  line.records = PipeReceiver(memory, kLineRing);
  line.slots = std::make_unique_for_overwrite<std::uint8_t[]>(kLineSlots * kLineSlot);
  Outlet outlet;
  outlet.peer = to;
  outlet.link = link_between(rank_, to);
  outlet.slots = kLineSlots;
  outlet.head = &line.head;
  line.outlet = &sending_->links()->add(outlet);
  return PipeSender(memory, kLineRing);
}

std::uint8_t* HostPipes::free_slot(Line& line) const { return line.slots.get() + line.sent % kLineSlots * kLineSlot; }

void HostPipes::send(Line& line, std::uint64_t bytes) {
  const std::uint8_t* const from = free_slot(line);
  sending_->send(*line.outlet, ++line.sent, from, bytes);
}

bool HostPipes::has_room(std::uint32_t to) const {
  const Line& line = lines_[to];
  return line.outlet != nullptr && line.sent - line.head < kLineSlots && sending_->connected(to);
}

bool HostPipes::push(std::uint32_t to) {
  Line& line = lines_[to];
  if (line.outlet == nullptr) return false;
  bool moved = false;
  Record record = line.records.look();
  while (record.kind != RecordKind::none && has_room(to)) {
    std::uint8_t* const slot = free_slot(line);
    std::uint64_t filled = 0;
    for (; record.kind != RecordKind::none && filled + length_of(record.bytes) <= kLineSlot;
         record = line.records.look()) {
      copy_bytes(slot + filled, record.data - kWord, kWord + record.bytes);
      filled += length_of(record.bytes);
      line.records.next(record);
    }
    send(line, filled);
    moved = true;
  }
  return moved;
}

void HostPipes::send_part(std::uint32_t to, const MessageHead& head, const std::uint8_t* data, std::uint64_t bytes) {
  Line& line = lines_[to];
  std::uint8_t* const slot = free_slot(line);
  const std::uint64_t first = word_of(RecordKind::part, head.tag, sizeof head + bytes);
  std::memcpy(slot, &first, kWord);
  std::memcpy(slot + kWord, &head, sizeof head);
  std::memcpy(slot + kWord + sizeof head, data, bytes);
  send(line, kWord + sizeof head + bytes);
}

void HostPipes::take_back(std::uint32_t to, std::uint64_t taken) {
  Line& line = lines_[to];
  if (line.pipe == nullptr || taken < line.taken) return;
  line.records.take(taken - line.taken);
  line.taken = taken;
}

Record HostPipes::look(std::uint32_t source) const {
  const Arrivals& from = arrivals_[source];
  if (from.inlet == nullptr) return {};
  const Inlet& inlet = *from.inlet;
  const std::uint64_t slot = inlet.taken % kLineSlots;
  if (from.words[2 * slot] != inlet.taken + 1) return {};
  const std::uint64_t elsewhere = from.words[2 * slot + 1];
  const std::uint8_t* const message = elsewhere == 0
                                          ? inlet.data + slot * kLineSlot
                                          : reinterpret_cast<const std::uint8_t*>(elsewhere & ~transport::kElsewhere);
  const std::uint64_t rest = inlet.lengths[slot] - from.read;
  std::uint64_t first = 0;
  if (rest >= kWord) std::memcpy(&first, message + from.read, kWord);
  const std::uint64_t bytes = first >> 8U & 0x7'ffffU;
  const auto kind = static_cast<RecordKind>(first & 0xffU);
  // No messenger sends that: such a message is passed over as a whole.
  const bool none = kind == RecordKind::none || kind == RecordKind::skip;
  if (rest < kWord || bytes > rest - kWord || none) return {RecordKind::skip, 0, nullptr, rest};
  return {kind, static_cast<std::int32_t>(first >> 32U), message + from.read + kWord, bytes, first >> 27U & 0x1fU};
}

void HostPipes::next(std::uint32_t source) {
  Arrivals& from = arrivals_[source];
  const Record record = look(source);
  from.read += record.kind == RecordKind::skip ? record.bytes : length_of(record.bytes);
  if (from.read < from.inlet->lengths[from.inlet->taken % kLineSlots]) return;
  from.read = 0;
  receiving_->take(*from.inlet);
}

void HostPipes::confirm(std::uint32_t source) {
  if (Inlet* const inlet = arrivals_[source].inlet; inlet != nullptr && inlet->taken != inlet->credited) {
    receiving_->credit(*inlet);
  }
}

void HostPipes::refuse(std::uint32_t source, const std::string& why) {
  receiving_->fail(sender_number(source), Failure::Kind::hostile, "it has sent " + why);
}

bool HostPipes::progress() {
  const bool received = receiving_->progress();
  return sending_->progress() || received;
}

bool HostPipes::has_left(std::uint32_t to) const {
  const Line& line = lines_[to];
  if (line.outlet == nullptr) return true;
  PipeReceiver records = line.records;
  return records.look().kind == RecordKind::none && sending_->idle();
}

bool HostPipes::has_all(std::uint32_t to) const { return has_left(to) && lines_[to].head == lines_[to].sent; }

std::optional<Diagnostic> HostPipes::problem(std::uint32_t peer) const {
  for (const auto& [end, number] :
       {std::pair(sending_.get(), peer), std::pair(receiving_.get(), sender_number(peer))}) {
    const auto found = end->failures().find(number);
    if (found == end->failures().end()) continue;
    const Failure& failure = found->second;
    if (failure.kind != Failure::Kind::hostile && std::chrono::steady_clock::now() - failure.since < kNoticed) continue;
    return Diagnostic(ErrorCode::RankLost,
                      group_.who(peer) + " cannot be reached any more: " + failure.reason + " (" + describe() + ")");
  }
  return {};
}

// A rank calls to send.
std::string HostPipes::why_not(std::uint32_t peer, bool sends) const {
  if (sends) {
    const std::string why = sending_->why_not(peer);
    return why.empty() ? "" : group_.who(rank_) + " cannot connect to " + group_.who(peer) + " at " + why;
  }
  if (receiving_->connected(sender_number(peer))) return "";
  return group_.who(peer) + " has not connected to " + group_.who(rank_) + " (" + describe() + ")";
}

std::array<int, 2> HostPipes::wake_descriptors() const {
  return {sending_->wake_descriptor(), receiving_->wake_descriptor()};
}

bool HostSleep::sleep(std::chrono::nanoseconds at_most) {
  if (pipes_ == nullptr) return false;
  if (!arm_()) return true;
  std::array<pollfd, 2> waiting{};
  const std::array<int, 2> descriptors = pipes_->wake_descriptors();
  for (std::size_t i = 0; i < waiting.size(); ++i) waiting[i] = {descriptors[i], POLLIN, 0};
  const auto s = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec limit{s.count(), (at_most - s).count()};
  ppoll(waiting.data(), waiting.size(), &limit, nullptr);
  return true;
}

}  // namespace gc3::p2p
