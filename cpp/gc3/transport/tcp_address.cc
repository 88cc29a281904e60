#include "gc3/transport/tcp_address.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <array>
#include <cstring>

namespace gc3::transport {
namespace {

// What is sent of an address: nothing that has another meaning on another host.
struct Wire {
  std::uint16_t version;  // of IP: 4 or 6
  std::uint16_t port;     // in network order
  std::array<std::uint8_t, 16> host;
};

}  // namespace

std::optional<TcpAddress> TcpAddress::parse(const std::string& text, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(text.c_str(), nullptr, &hints, &found) != 0) return {};
  TcpAddress made;
  std::memcpy(&made.storage_, found->ai_addr, found->ai_addrlen);
  made.length_ = found->ai_addrlen;
  freeaddrinfo(found);
  if (made.family() == AF_INET) {
    reinterpret_cast<sockaddr_in&>(made.storage_).sin_port = htons(port);
  } else if (made.family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(made.storage_).sin6_port = htons(port);
  } else {
    return {};
  }
  return made;
}

std::optional<TcpAddress> TcpAddress::of(int socket) {
  TcpAddress made;
  made.length_ = sizeof made.storage_;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&made.storage_), &made.length_) != 0) return {};
  return made;
}

std::string TcpAddress::bytes() const {
  Wire wire{};
  if (family() == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage_);
    wire.version = 4;
    wire.port = in.sin_port;
    std::memcpy(wire.host.data(), &in.sin_addr, sizeof in.sin_addr);
  } else {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(storage_);
    wire.version = 6;
    wire.port = in.sin6_port;
    std::memcpy(wire.host.data(), &in.sin6_addr, sizeof in.sin6_addr);
  }
  return {reinterpret_cast<const char*>(&wire), sizeof wire};
}

std::optional<TcpAddress> TcpAddress::from_bytes(std::string_view bytes) {
  Wire wire{};
  if (bytes.size() != sizeof wire) return {};
  std::memcpy(&wire, bytes.data(), sizeof wire);
  TcpAddress made;
  if (wire.version == 4) {
    auto& in = reinterpret_cast<sockaddr_in&>(made.storage_);
    in.sin_family = AF_INET;
    in.sin_port = wire.port;
    std::memcpy(&in.sin_addr, wire.host.data(), sizeof in.sin_addr);
    made.length_ = sizeof in;
  } else if (wire.version == 6) {
    auto& in = reinterpret_cast<sockaddr_in6&>(made.storage_);
    in.sin6_family = AF_INET6;
    in.sin6_port = wire.port;
    std::memcpy(&in.sin6_addr, wire.host.data(), sizeof in.sin6_addr);
    made.length_ = sizeof in;
  } else {
    return {};
  }
  return made;
}

std::string TcpAddress::str() const {
  std::array<char, INET6_ADDRSTRLEN> host{};
  const bool six = family() == AF_INET6;
  const auto& in = reinterpret_cast<const sockaddr_in&>(storage_);
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(storage_);
  inet_ntop(family(), six ? static_cast<const void*>(&in6.sin6_addr) : &in.sin_addr, host.data(), host.size());
  std::string text = six ? "[" : "";
  text += host.data();
  text += six ? "]:" : ":";
  return text += std::to_string(ntohs(six ? in6.sin6_port : in.sin_port));
}

}  // namespace gc3::transport
