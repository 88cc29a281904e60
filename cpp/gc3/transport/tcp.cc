#include "gc3/transport/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/meeting/rendezvous_wire.h"
#include "gc3/runtime/core/sharing/shared_memory.h"
#include "gc3/transport/offer.h"

namespace gc3::transport {
namespace {

using core::bytes_of;
using core::Endpoint;
using core::FileDescriptor;
using core::Handshake;
using core::Nonce;
using core::refused;

// What the caller says of itself, covered by its proof.
struct Introduction {
  static constexpr std::uint64_t kOrder = 0x0102030405060708;  // another byte order is another number

  std::uint64_t order = kOrder;
  std::uint32_t version = 1;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t unused = 0;
};
struct Hello {
  Nonce nonce;
  Introduction introduction;
  Digest proof;
};

constexpr std::size_t kMostUnproven = 64;  // connections that have proven nothing, beside those that are expected
constexpr int kAtOnce = 64;                // connections accepted in one look
constexpr auto kGuestTime = std::chrono::seconds(5);
constexpr auto kBetweenCalls = std::chrono::milliseconds(50);
constexpr std::size_t kFewStreams = 4;               // that are read without asking first which has anything
constexpr auto kClosing = std::chrono::seconds(10);  // for what is still under way when the communicator is closed
constexpr double kTurn = 0.01;                       // seconds of it for a peer before the next one

// Ends an idle connection to a host that does not answer; heartbeats find it sooner if there are any. There is no limit
// for data under way (TCP_USER_TIMEOUT): it would also end the connection to a rank that is only late, because nobody
// reads between calls.
void set_options(int socket) {
  const auto set = [&](int level, int name, int value) { setsockopt(socket, level, name, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);  // s
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

bool send_now(int socket, std::string_view bytes) {
  // So little fits into the buffer of a new socket.
  return send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

Result<std::unique_ptr<Tcp>> Tcp::create(std::uint32_t rank, const std::string& host, std::string secret) {
  const std::optional<Endpoint> wanted = core::numeric_host(host);
  if (!wanted) return Diagnostic(ErrorCode::BadOption, "'" + host + "' is no numeric address of a host");
  std::unique_ptr<Tcp> made(new Tcp(rank, std::move(secret)));
  made->listener_ = FileDescriptor(socket(wanted->get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made->listener_.valid()) return refused("a socket for connections between hosts");
  if (bind(made->listener_.get(), wanted->get(), wanted->length) != 0) return refused("binding to " + host);
  if (listen(made->listener_.get(), SOMAXCONN) != 0) return refused("listening on " + host);
  made->epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!made->epoll_.valid()) return refused("a socket for connections between hosts");
  made->address_ = core::address_at(made->listener_.get());
  return made;
}

Tcp::~Tcp() {
  if (abandoned_) return;
  // By turns, so that a peer that reads nothing takes no time from the others.
  const Clock::time_point until = Clock::now() + kClosing;
  while (!streams_.empty() && Clock::now() < until) {
    std::erase_if(streams_, [](auto& entry) { return entry.second.stream->finish(kTurn); });
  }
}

Status Tcp::connect(std::uint32_t peer, std::string_view address) {
  if (connected(peer)) return {};
  std::optional<Endpoint> read = core::numeric_endpoint(address);
  if (!read) return Diagnostic(ErrorCode::RankLost, "rank " + std::to_string(peer) + " has sent no TCP address");
  read->set_scope(address_);
  expected_[peer] = *read;
  listen_if_expecting();
  if (peer < rank_) call(peer);
  return {};
}

// Strangers cannot even be noticed while no rank is expected.
void Tcp::listen_if_expecting() {
  const bool expects = std::ranges::any_of(expected_, [&](const auto& e) { return e.first > rank_; });
  if (expects == listens_) return;
  listens_ = expects;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = ~std::uint64_t{0};
  epoll_ctl(epoll_.get(), expects ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_.get(), &event);
}

void Tcp::call(std::uint32_t peer) {
  called_ = Clock::now();
  const Endpoint& to = expected_.at(peer);
  auto guest = std::make_unique<Guest>();
  guest->socket = FileDescriptor(socket(to.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  Result<Nonce> nonce = Handshake::new_nonce();
  if (!guest->socket.valid() || !nonce.ok()) return;  // tried again
  guest->own = nonce.value();
  set_options(guest->socket.get());
  if (::connect(guest->socket.get(), to.get(), to.length) != 0 && errno != EINPROGRESS) {
    why_not_[peer] = std::strerror(errno);
    return;
  }
  guest->since = Clock::now();
  guest->calls = true;
  guest->peer = peer;
  guest->wanted = sizeof(Nonce);
  guests_.push_back(std::move(guest));
}

void Tcp::accept_guests() {
  for (int i = 0; i < kAtOnce; ++i) {
    auto guest = std::make_unique<Guest>();
    guest->socket = FileDescriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!guest->socket.valid()) return;
    set_options(guest->socket.get());
    Result<Nonce> nonce = Handshake::new_nonce();
    if (!nonce.ok() || !send_now(guest->socket.get(), as_text(nonce.value()))) continue;
    guest->own = nonce.value();
    guest->since = Clock::now();
    guest->wanted = sizeof(Hello);
    const auto comes = [](const auto& g) { return !g->calls; };
    if (std::cmp_greater_equal(std::ranges::count_if(guests_, comes), kMostUnproven + expected_.size())) {
      guests_.erase(std::ranges::find_if(guests_, comes));  // has waited longest: the least likely to be a rank
    }
    guests_.push_back(std::move(guest));
  }
}

Handshake Tcp::handshake_of(const Guest& guest) const {
  const Nonce& host = guest.calls ? guest.other : guest.own;
  return {secret_, "transport", host, guest.calls ? guest.own : guest.other};
}

// Whether a message of the handshake has come.
bool Tcp::go_on(Guest& guest) {
  std::array<char, sizeof(Hello)> bytes;
  const std::size_t wanted = guest.wanted - guest.input.size();
  const ssize_t got = recv(guest.socket.get(), bytes.data(), wanted, MSG_DONTWAIT);
  if (got > 0) guest.input.append(bytes.data(), static_cast<std::size_t>(got));
  const bool later = got < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN);
  if (guest.calls && got <= 0 && !later)
    why_not_[guest.peer] = got == 0 ? "it closes the connection" : std::strerror(errno);
  // A listener that has the caller's proof may have settled it in already, however late it answers.
  const bool waits = guest.calls && guest.step != 0;
  guest.failed = (got <= 0 && !later) || (!waits && Clock::now() - guest.since > kGuestTime);
  return !guest.failed && guest.input.size() == guest.wanted;
}

// The caller has the listener's nonce, and proves that it knows the secret; then it expects the listener's proof.
bool Tcp::greet(Guest& guest) {
  if (guest.step == 0) {
    std::memcpy(guest.other.data(), guest.input.data(), sizeof(Nonce));
    Hello hello;
    hello.nonce = guest.own;
    hello.introduction.from = rank_;
    hello.introduction.to = guest.peer;
    hello.proof = handshake_of(guest).proof(Handshake::Role::guest, bytes_of(hello.introduction));
    guest.failed = !send_now(guest.socket.get(), bytes_of(hello));
    guest.wanted = sizeof(Digest);
    guest.input.clear();
    ++guest.step;
    return false;
  }
  Digest proof;
  std::memcpy(proof.data(), guest.input.data(), sizeof proof);
  guest.failed = !handshake_of(guest).proven(Handshake::Role::host, {}, proof);
  return !guest.failed;
}

// The listener checks the proof before it looks at what the caller says, and then gives its own.
bool Tcp::answer(Guest& guest) {
  Hello hello;
  std::memcpy(&hello, guest.input.data(), sizeof hello);
  guest.other = hello.nonce;
  const Handshake handshake = handshake_of(guest);
  const Introduction& said = hello.introduction;
  guest.failed = !handshake.proven(Handshake::Role::guest, bytes_of(said), hello.proof) ||
                 said.order != Introduction::kOrder || said.version != Introduction().version || said.to != rank_ ||
                 said.from <= rank_ || !expected_.contains(said.from) || connected(said.from) ||
                 !send_now(guest.socket.get(), as_text(handshake.proof(Handshake::Role::host, {})));
  guest.peer = said.from;
  return !guest.failed;
}

bool Tcp::settle_in(Guest& guest) {
  if (!go_on(guest) || !(guest.calls ? greet(guest) : answer(guest))) return false;
  Peer& peer = streams_[guest.peer];
  peer.stream = std::make_unique<TcpStream>(std::move(guest.socket), guest.peer);
  watch(peer);
  expected_.erase(guest.peer);
  listen_if_expecting();
  return true;
}

bool Tcp::serve_guests() {
  if (listens_) accept_guests();
  bool moved = false;
  std::erase_if(guests_, [&](const auto& guest) {
    const bool settled = settle_in(*guest);
    moved |= settled;
    return settled || guest->failed;
  });
  if (Clock::now() - called_ < kBetweenCalls) return moved;
  called_ = Clock::now();
  // A call that has failed is made again: the host may have been busy. Whoever waits gives up in time.
  for (const auto& [peer, address] : expected_) {
    const bool calls = std::ranges::any_of(guests_, [p = peer](const auto& g) { return g->calls && g->peer == p; });
    if (peer < rank_ && !calls) call(peer);
  }
  return moved;
}

void Tcp::watch(Peer& peer) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (peer.stream->has_output()) event.events |= EPOLLOUT;
  event.data.u64 = peer.stream->peer();
  const bool changed = !peer.watched || peer.watches_output != peer.stream->has_output();
  if (peer.stream->has_ended()) {
    if (peer.watched) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.stream->descriptor(), &event);
    peer.watched = false;
  } else if (changed) {
    epoll_ctl(epoll_.get(), peer.watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, peer.stream->descriptor(), &event);
    peer.watched = true;
    peer.watches_output = peer.stream->has_output();
  }
}

void Tcp::send(Outlet& to, std::uint64_t flag, const std::uint8_t* from, std::uint64_t bytes) {
  if (abandoned_) return;
  ++to.sent;
  Peer& peer = streams_.at(to.peer);
  // Credit that is owed to the same rank costs nothing beside a message.
  for (Inlet* inlet : peer.inlets) {
    if (inlet->taken == inlet->credited) continue;
    inlet->credited = inlet->taken;
    peer.stream->add_credit(inlet->link, inlet->taken);
  }
  peer.stream->add_data(to.link, flag, from, bytes);
  push(peer);
}

void Tcp::credit(Inlet& from) {
  if (abandoned_) return;
  from.credited = from.taken;
  Peer& peer = streams_.at(from.peer);
  peer.stream->add_credit(from.link, from.taken);
  push(peer);
}

void Tcp::push(Peer& peer) {
  peer.stream->flush();
  if (peer.watches_output != peer.stream->has_output()) watch(peer);
}

bool Tcp::serve(Peer& peer) {
  TcpStream& stream = *peer.stream;
  bool moved = stream.has_output() && stream.flush();
  moved |= stream.receive(*links_, [&](Inlet& inlet, std::uint64_t flag, const std::uint8_t* at) {
    if (std::ranges::find(peer.inlets, &inlet) == peer.inlets.end()) peer.inlets.push_back(&inlet);
    arrive(inlet, flag, at);
  });
  if (!stream.nonsense().empty()) {
    fail(stream.peer(), Failure::Kind::hostile, stream.nonsense());
  } else if (!stream.broken().empty()) {
    fail(stream.peer(), stream.has_lost() ? Failure::Kind::lost : Failure::Kind::left, stream.broken());
  }
  if (peer.watches_output != stream.has_output() || (stream.has_ended() && peer.watched)) watch(peer);
  return moved;
}

bool Tcp::progress() {
  if (abandoned_) return false;
  bool moved = false;
  if (!guests_.empty() || !expected_.empty()) moved = serve_guests();
  if (streams_.size() <= kFewStreams) {
    for (auto& [rank, peer] : streams_) moved |= serve(peer);
    return moved;
  }
  std::array<epoll_event, 64> events;
  const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const auto found = streams_.find(static_cast<std::uint32_t>(events[static_cast<std::size_t>(i)].data.u64));
    if (found != streams_.end()) moved |= serve(found->second);
  }
  return moved;
}

std::string Tcp::why_not(std::uint32_t peer) const {
  const auto address = expected_.find(peer);
  if (address == expected_.end()) return {};
  const auto why = why_not_.find(peer);
  const bool calls = peer < rank_;
  return address->second.str() + ": " +
         (why != why_not_.end() ? why->second
          : calls               ? "no answer"
                                : "it has not connected");
}

bool Tcp::idle() const {
  return std::ranges::none_of(streams_, [](const auto& s) { return s.second.stream->has_output(); });
}

void Tcp::abandon() {
  abandoned_ = true;
  streams_.clear();
  guests_.clear();
}

Result<Offer> offer_tcp(const std::optional<core::Endpoint>&) {
  return Offer{
      [](std::uint32_t rank, const std::string& host, std::string secret) -> Result<std::unique_ptr<Transport>> {
        GC3_ASSIGN(std::unique_ptr<Transport> made, Tcp::create(rank, host, std::move(secret)));
        return made;
      }};
}

}  // namespace gc3::transport
