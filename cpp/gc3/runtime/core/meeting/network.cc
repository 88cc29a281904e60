#include "gc3/runtime/core/meeting/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/text.h"
#include "gc3/runtime/core/meeting/rendezvous_wire.h"

namespace gc3::core {
namespace {

constexpr std::size_t kMostUnsent = std::size_t{16} << 20U;  // bytes; a leader that reads nothing is lost
constexpr std::size_t kRead = std::size_t{64} << 10U;

struct FrameHead {
  std::uint32_t magic = kVersion;
  std::uint32_t bytes = 0;
};

std::span<const std::uint8_t> bits_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return {reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr), 4};
  }
  return {reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr), 16};
}

bool same_host(const sockaddr* a, const sockaddr* b) {
  return a->sa_family == b->sa_family && std::ranges::equal(bits_of(a), bits_of(b));
}

Endpoint endpoint_of(const sockaddr* address) {
  Endpoint endpoint;
  endpoint.length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&endpoint.address, address, endpoint.length);
  endpoint.set_port(0);
  return endpoint;
}

struct Found {
  Interface interface;
  bool loopback = false;
};

std::vector<Found> interfaces() {
  std::vector<Found> found;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, &freeifaddrs);
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    if (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6) continue;
    found.push_back({{at->ifa_name, endpoint_of(at->ifa_addr)}, (at->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
}

Result<bool> fits(const Interface& interface, std::string_view wish) {
  const std::size_t slash = wish.find('/');
  if (slash == std::string_view::npos) return interface.name == wish;
  const std::optional<Endpoint> network = numeric_host(std::string(wish.substr(0, slash)));
  unsigned bits = 0;
  const std::string_view count = wish.substr(slash + 1);
  const auto [end, wrong] = std::from_chars(count.data(), count.data() + count.size(), bits);
  const std::size_t most = network ? 8 * bits_of(network->get()).size() : 0;
  if (!network || wrong != std::errc() || end != count.data() + count.size() || bits > most) {
    return Diagnostic(ErrorCode::BadOption, "GC3_NETWORK=" + in_quotes(wish) + ": expected a network as 10.0.0.0/8");
  }
  if (interface.address.get()->sa_family != network->get()->sa_family) return false;
  const auto a = bits_of(interface.address.get());
  const auto b = bits_of(network->get());
  for (unsigned i = 0; i < bits; ++i) {
    if ((a[i / 8] >> (7 - i % 8) & 1U) != (b[i / 8] >> (7 - i % 8) & 1U)) return false;
  }
  return true;
}

struct Parts {
  std::string host;
  std::uint16_t port = 0;
};

// Of "host:port" or "[host]:port".
std::optional<Parts> parts_of(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return {};
  Parts parts;
  const char* const end = text.data() + text.size();
  const auto [stop, wrong] = std::from_chars(text.data() + colon + 1, end, parts.port);
  if (wrong != std::errc() || stop != end) return {};
  text = text.substr(0, colon);
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  parts.host = text;
  return parts;
}

// The IP addresses of a name, without a port; or getaddrinfo's code.
int look_up(const std::string& name, int flags, std::vector<Endpoint>& found) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (const int code = getaddrinfo(name.c_str(), nullptr, &hints, &first); code != 0) return code;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(first, &freeaddrinfo);
  for (const addrinfo* at = first; at != nullptr; at = at->ai_next) {
    if (at->ai_family == AF_INET || at->ai_family == AF_INET6) found.push_back(endpoint_of(at->ai_addr));
  }
  return 0;
}

// The address from which the system would send there.
std::optional<Endpoint> routed_from(const Endpoint& towards) {
  Endpoint to = towards;
  if (to.port() == 0) to.set_port(1);
  const FileDescriptor probe(socket(to.get()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid() || connect(probe.get(), to.get(), to.length) != 0) return {};  // sends nothing
  return address_at(probe.get());
}

}  // namespace

std::uint16_t Endpoint::port() const {
  return ntohs(get()->sa_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(get())->sin_port
                                           : reinterpret_cast<const sockaddr_in6*>(get())->sin6_port);
}

void Endpoint::set_port(std::uint16_t port) {
  if (get()->sa_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&address)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = htons(port);
  }
}

std::string Endpoint::host() const {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(get(), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return text.data();
}

std::string Endpoint::str() const {
  const std::string name = host();
  const bool v6 = name.find(':') != std::string::npos;
  return std::string(v6 ? "[" : "").append(name).append(v6 ? "]:" : ":").append(std::to_string(port()));
}

void Endpoint::set_scope(const Endpoint& own) {
  if (get()->sa_family != AF_INET6 || own.get()->sa_family != AF_INET6) return;
  auto& in = *reinterpret_cast<sockaddr_in6*>(&address);
  if (IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr))
    in.sin6_scope_id = reinterpret_cast<const sockaddr_in6*>(own.get())->sin6_scope_id;
}

Result<std::vector<Endpoint>> resolve(const std::string& text) {
  const auto bad = [&](const std::string& why) {
    return Diagnostic(ErrorCode::BadOption, "the address of rank 0's host, " + in_quotes(text) +
                                                " (of GC3_RENDEZVOUS, or MASTER_ADDR): " + why);
  };
  const std::optional<Parts> parts = parts_of(text);
  if (!parts || parts->port == 0) return bad("expected host:port with a port from 1 to 65535");
  std::vector<Endpoint> found;
  if (const int code = look_up(parts->host, 0, found); code != 0) return bad(gai_strerror(code));
  if (found.empty()) return bad("it has no IP address");
  for (Endpoint& one : found) one.set_port(parts->port);
  // Those that can be reached first, in the order of the system.
  std::ranges::stable_partition(found, [](const Endpoint& one) { return routed_from(one).has_value(); });
  return found;
}

std::optional<Endpoint> numeric_host(const std::string& text) {
  std::vector<Endpoint> found;
  if (look_up(text, AI_NUMERICHOST, found) != 0 || found.empty()) return {};
  return found.front();
}

std::optional<Endpoint> numeric_endpoint(std::string_view text) {
  const std::optional<Parts> parts = parts_of(text);
  if (!parts) return {};
  std::optional<Endpoint> found = numeric_host(parts->host.substr(0, parts->host.find('%')));
  if (found) found->set_port(parts->port);
  return found;
}

bool is_of_this_host(const Endpoint& endpoint) {
  return std::ranges::any_of(
      interfaces(), [&](const Found& found) { return same_host(found.interface.address.get(), endpoint.get()); });
}

Result<Interface> choose_interface(const std::string& wish, const std::optional<Endpoint>& towards) {
  const std::optional<Endpoint> route = towards ? routed_from(*towards) : std::nullopt;
  std::vector<Found> left;
  std::string all;
  for (const Found& one : interfaces()) {
    all += (all.empty() ? "" : ", ") + one.interface.name + " (" + one.interface.address.host() + ")";
    bool named = false;  // whether the wish names interfaces to use
    bool wanted = false;
    bool unwanted = false;
    for (std::string_view rest = wish; !rest.empty();) {
      const std::string_view item = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), item.size() + 1));
      const bool without = item.starts_with('!');
      GC3_ASSIGN(const bool hit, fits(one.interface, item.substr(without ? 1 : 0)));
      named = named || !without;
      (without ? unwanted : wanted) = (without ? unwanted : wanted) || hit;
    }
    if (!unwanted && (wanted || !named)) left.push_back(one);
  }
  const auto rank_of = [&](const Found& one) {
    const bool routed = route && same_host(one.interface.address.get(), route->get());
    const bool family = one.interface.address.get()->sa_family ==
                        (towards ? towards->get()->sa_family : static_cast<sa_family_t>(AF_INET));
    return std::pair(routed ? 0 : one.loopback ? 2 : 1, family ? 0 : 1);
  };
  const auto best = std::ranges::min_element(left, {}, rank_of);
  if (best == left.end()) {
    return Diagnostic(ErrorCode::BadOption, (wish.empty() ? "no network interface is up"
                                                          : "GC3_NETWORK=" + in_quotes(wish) + " fits no interface") +
                                                std::string(all.empty() ? "" : "; there are ") + all);
  }
  return best->interface;
}

Endpoint address_at(int socket) {
  Endpoint endpoint;
  endpoint.length = sizeof endpoint.address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&endpoint.address), &endpoint.length);
  return endpoint;
}

Result<FileDescriptor> listen_on(const Interface& interface, std::uint16_t port) {
  Endpoint at = interface.address;
  at.set_port(port);
  FileDescriptor listener(socket(at.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return refused("socket");
  // A listener of a job that has just ended leaves the port for minutes otherwise; one that listens still keeps it.
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener.get(), at.get(), at.length) != 0 || listen(listener.get(), kBacklog) != 0) {
    if (errno != EADDRINUSE) return refused("listening at " + at.str() + " of " + interface.str());
    return Diagnostic(ErrorCode::NotMet, "another process listens at " + at.str() + " of " + interface.str() +
                                             "; set GC3_PORT or GC3_RENDEZVOUS to a free port, on all ranks");
  }
  return listener;
}

Frames::Frames(FileDescriptor socket) : socket_(std::move(socket)) {
  if (!socket_.valid()) return;
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool Frames::fill(std::size_t most) {
  in_.erase(0, std::exchange(taken_, 0));
  const auto is_frame = [&] {
    FrameHead head;
    std::memcpy(&head, in_.data(), std::min(in_.size(), sizeof head));
    if (in_.size() >= sizeof head.magic) other_version_ = head.magic != kVersion && head.magic >> 8U == kVersion >> 8U;
    return (in_.size() < sizeof head.magic || head.magic == kVersion) &&
           (in_.size() < sizeof head || head.bytes <= most);
  };
  for (;;) {
    const std::size_t had = in_.size();
    const std::size_t room = std::min(kRead, sizeof(FrameHead) + most - std::min(had, sizeof(FrameHead) + most));
    if (room == 0) return is_frame();
    in_.resize(had + room);
    const ssize_t got = recv(socket_.get(), in_.data() + had, room, MSG_DONTWAIT);
    in_.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return is_frame();
    // A peer may send its last frames and close.
    if (got <= 0) {
      FrameHead head;
      if (in_.size() < sizeof head) return false;
      std::memcpy(&head, in_.data(), sizeof head);
      return is_frame() && in_.size() >= sizeof head + head.bytes;
    }
  }
}

std::optional<std::string> Frames::next() {
  FrameHead head;
  if (in_.size() - taken_ < sizeof head) return {};
  std::memcpy(&head, in_.data() + taken_, sizeof head);
  if (head.magic != kVersion || in_.size() - taken_ - sizeof head < head.bytes) return {};
  std::string frame = in_.substr(taken_ + sizeof head, head.bytes);
  taken_ += sizeof head + head.bytes;
  return frame;
}

bool Frames::queue(std::string_view payload) {
  if (out_.size() + payload.size() > kMostUnsent) return false;
  out_ += bytes_of(FrameHead{kVersion, static_cast<std::uint32_t>(payload.size())});
  out_ += payload;
  return true;
}

bool Frames::acknowledged() const {
  int left = 0;  // bytes in the system's queue
  return ioctl(socket_.get(), SIOCOUTQ, &left) == 0 && left == 0;
}

bool Frames::flush() {
  std::size_t gone = 0;
  while (gone < out_.size()) {
    const ssize_t sent = send(socket_.get(), out_.data() + gone, out_.size() - gone, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      out_.erase(0, gone);
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    gone += static_cast<std::size_t>(sent);
  }
  out_.erase(0, gone);
  return true;
}

}  // namespace gc3::core
