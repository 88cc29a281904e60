#include "gc3/runtime/cpu/host_links.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/random.h"
#include "gc3/base/sha256.h"

namespace gc3::cpu {
namespace {

using Clock = std::chrono::steady_clock;
using core::Group;
using transport::Failure;

constexpr auto kConnecting = std::chrono::seconds(20);
// A connection that has ended is an error of its own only if nobody has noticed by then that the rank or its host has.
constexpr auto kNoticed = std::chrono::milliseconds(3500);

// "UCX", as the field writes it.
std::string capital(std::string_view name) {
  std::string text(name);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

}  // namespace

std::unique_ptr<HostLinks> HostLinks::create(Group& group, Options options) {
  const std::vector<std::uint32_t>& hosts = options.hosts;
  if (hosts.size() != group.size() || std::ranges::all_of(hosts, [&](auto h) { return h == hosts.front(); })) return {};
  return std::unique_ptr<HostLinks>(new HostLinks(group, std::move(options)));
}

bool HostLinks::apart(const interp::Plan& plan) const {
  return std::ranges::any_of(plan.connections, [&](const interp::Connection& c) {
    return apart(plan.threadblocks[c.sender_tb].rank, plan.threadblocks[c.receiver_tb].rank);
  });
}

Result<std::vector<transport::Offer>> HostLinks::offers() const {
  const std::vector<core::Host>& hosts = group_.placement().hosts;
  const auto first = hosts.empty() ? std::nullopt : core::numeric_host(hosts.front().address);
  std::vector<transport::Offer> found;
#define GC3_TRANSPORT(name) transport::offer_##name,
  for (const auto offer : {GC3_TRANSPORTS(GC3_TRANSPORT)}) {
    GC3_ASSIGN(transport::Offer own, offer(first));
    found.push_back(std::move(own));
  }
#undef GC3_TRANSPORT
  return found;
}

Status HostLinks::choose(const core::Interrupted& interrupted) {
  if (options_.make || options_.choice != nullptr) return {};
  Result<std::vector<transport::Offer>> own = offers();
  // A bit for each transport that a rank has; none: it cannot say. That is no rank without any, since all have TCP.
  std::uint64_t mine = 0;
  for (std::size_t i = 0; own.ok() && i < own.value().size(); ++i) {
    if (own.value()[i].make) mine |= std::uint64_t{1} << i;
  }
  GC3_ASSIGN(const auto have, group_.exchange({mine}, interrupted));
  if (!own.ok()) return std::move(own.error());
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    if (have[r][0] == 0) {
      return Diagnostic(ErrorCode::RankLost, group_.who(r) + " cannot open connections to other hosts");
    }
  }
  Choice choice;
  for (std::size_t i = own.value().size(); i-- > 0 && !choice.make;) {
    transport::Offer& offer = own.value()[i];
    const std::string name = capital(kTransports[i + 1]);
    const auto lacks = std::ranges::find_if(have, [&](const Group::Payload& r) { return (r[0] >> i & 1) == 0; });
    if (lacks == have.end()) {
      choice.kind = static_cast<TransportKind>(i + 1);
      choice.make = std::move(offer.make);
    } else if (offer.make) {
      const auto r = static_cast<std::uint32_t>(lacks - have.begin());
      choice.reason += "; not over " + name + ": " + group_.who(r) + " does not use " + name;
    } else if (!offer.why_not.empty()) {
      choice.reason += "; not over " + name + ": " + offer.why_not;
    }
  }
  options_.choice = std::make_shared<const Choice>(std::move(choice));
  return {};
}

TransportKind HostLinks::kind() const {
  return options_.choice == nullptr ? TransportKind::none : options_.choice->kind;  // none: one of a test
}

Result<std::unique_ptr<transport::Transport>> HostLinks::make(std::string secret) const {
  if (options_.make) return options_.make(group_.rank(), std::move(secret));
  // The interface by which the hosts have met; tests have one host.
  const Group::Placement& placement = group_.placement();
  const std::string& host =
      placement.several() ? placement.hosts[placement.host_of[group_.rank()]].address : "127.0.0.1";
  return options_.choice->make(group_.rank(), host, std::move(secret));
}

std::string HostLinks::describe() const {
  const std::string carrier =
      transport_ != nullptr ? transport_->describe() : std::string(name_of(kind())) + ", not connected yet";
  return carrier + (options_.choice == nullptr ? "" : options_.choice->reason);
}

Status HostLinks::start(const core::Interrupted& interrupted) {
  // Drawn anew for each communicator. Only who knows the job's key can compute the secret from it.
  Group::Payload drawn{};
  GC3_CHECK(draw_random(drawn));
  GC3_ASSIGN(const auto tokens, group_.exchange(drawn, interrupted));
  const std::string_view token(reinterpret_cast<const char*>(tokens.front().data()), sizeof(Group::Payload));
  std::string secret(as_text(hmac_sha256(group_.job()->key(), token)));
  Result<std::unique_ptr<transport::Transport>> made = make(std::move(secret));
  // A rank without one takes part in the exchange, so that the others learn it.
  GC3_ASSIGN(addresses_, group_.exchange_bytes(made.ok() ? made.value()->address() : "", interrupted));
  if (!made.ok()) return std::move(made.error());
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    if (addresses_[r].empty()) {
      return Diagnostic(ErrorCode::RankLost, group_.who(r) + " cannot open connections to other hosts");
    }
  }
  transport_ = std::move(made).value();
  return {};
}

Status HostLinks::connect(const std::vector<std::uint32_t>& peers, const core::Interrupted& interrupted,
                          const std::function<bool()>& progress) {
  if (transport_ == nullptr) GC3_CHECK(start(interrupted));
  for (const std::uint32_t peer : peers) {
    const Status begun = transport_->connect(peer, addresses_[peer]);
    if (!begun.ok()) return group_.give_up(begun.error());
  }
  core::Waiter waiter(group_, interrupted);
  core::WaitClock connecting;
  for (const std::uint32_t peer : peers) {
    while (!transport_->connected(peer)) {
      if (progress ? progress() : transport_->progress()) waiter.renew();
      if (connecting.waited() > kConnecting) {
        const std::string why = transport_->why_not(peer);
        return group_.give_up(Diagnostic(ErrorCode::RankLost, group_.who(group_.rank()) + " (" +
                                                                  transport_->describe() + ") and " + group_.who(peer) +
                                                                  " cannot connect to each other" +
                                                                  (why.empty() ? "" : "; " + why)));
      }
      if (!waiter.rest([] { return core::Bells::kAnybody; })) return std::move(waiter.problem());
    }
  }
  return {};
}

Result<HostLinks::Opened> HostLinks::open(std::uint32_t sender, std::uint32_t receiver,
                                          const interp::FifoGeometry& geometry, std::uint64_t bytes) {
  const transport::LinkId link = next_++;
  Opened opened;
  if (sender != group_.rank() && receiver != group_.rank()) return opened;
  GC3_ASSIGN(Arena arena, Arena::create(bytes, "the FIFO of a connection to another host"));
  auto* const head = reinterpret_cast<interp::Counter*>(arena.data());
  std::uint8_t* const slots = arena.data() + interp::kCacheLine;
  auto* const arrivals = reinterpret_cast<std::uint64_t*>(slots + geometry.slots_bytes());
  memory_.push_back(std::move(arena));
  if (sender == group_.rank()) {
    opened.send = {arrivals, head, slots, 0, 0, 0};
    transport::Outlet outlet;
    outlet.peer = receiver;
    outlet.link = link;
    outlet.head = &head->value;
    opened.outlet = &transport_->links()->add(outlet);
  } else {
    opened.recv = {arrivals, head, slots, 0, 0};
    transport::Inlet inlet;
    inlet.peer = sender;
    inlet.link = link;
    inlet.slots = geometry.slots;
    inlet.slot_bytes = std::min<std::uint64_t>(geometry.slot_bytes, std::numeric_limits<std::uint32_t>::max());
    inlet.slot_stride = geometry.slot_stride();
    inlet.data = slots;
    inlet.arrivals = arrivals;
    opened.inlet = &transport_->links()->add(std::move(inlet));
  }
  return opened;
}

std::optional<Diagnostic> HostLinks::problem(const std::vector<std::uint32_t>& peers) const {
  for (const auto& [peer, failure] : transport_->failures()) {
    const bool awaited = std::ranges::find(peers, peer) != peers.end();
    if (failure.kind == Failure::Kind::left && !awaited) continue;
    if (failure.kind != Failure::Kind::hostile && Clock::now() - failure.since < kNoticed) continue;
    return Diagnostic(ErrorCode::RankLost, group_.who(peer) + " cannot be reached any more: " + failure.reason + " (" +
                                               transport_->describe() + ")");
  }
  return {};
}

void HostLinks::note_length(const transport::Inlet& inlet, std::uint64_t sent, std::uint64_t due) {
  transport_->fail(inlet.peer, Failure::Kind::hostile,
                   "it has sent " + std::to_string(sent) + " bytes where " + std::to_string(due) + " are due");
}

}  // namespace gc3::cpu
