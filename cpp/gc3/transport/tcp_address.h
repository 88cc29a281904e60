// Numeric addresses of hosts, as sockets and messages have them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gc3::transport {

class TcpAddress {
 public:
  // From "10.0.0.1" or "fe80::1%eth0"; none: it is no numeric address.
  static std::optional<TcpAddress> parse(const std::string& text, std::uint16_t port);
  // What bytes() has given, on this rank or another.
  static std::optional<TcpAddress> from_bytes(std::string_view bytes);
  // That of this end of a socket.
  static std::optional<TcpAddress> of(int socket);

  std::string bytes() const;
  std::string str() const;  // "10.0.0.1:4711"
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }
  int family() const { return storage_.ss_family; }

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

}  // namespace gc3::transport
