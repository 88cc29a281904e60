// Addresses, interfaces, and frames over TCP: what leaders of hosts need to talk to each other.
//
// Every error of a connection names the interface and the address, because a wrong interface is the usual mistake.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/core/sharing/file_descriptor.h"

namespace gc3::core {

struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  std::string host() const;  // without the port
  std::string str() const;   // "10.0.0.1:29501" or "[fe80::1%eth0]:29501"
  // An interface of one host says nothing to another: takes that of an address of this host.
  void set_scope(const Endpoint& own);
};
// Of "node0:29501", "10.0.0.1:29501" or "[fe80::1]:29501": all addresses, the best one first.
Result<std::vector<Endpoint>> resolve(const std::string& text);
// Of "10.0.0.1" or "fe80::1%eth0", without a port. None: it is no numeric address. Asks nobody.
std::optional<Endpoint> numeric_host(const std::string& text);
// Of what str() has given on any host, without its interface.
std::optional<Endpoint> numeric_endpoint(std::string_view text);

struct Interface {
  std::string name;
  Endpoint address;  // without a port

  std::string str() const { return "interface " + name + " (" + address.host() + ")"; }
};
// The interface whose route leads to `towards` (none: the default route, or the first one that is no loopback). `wish`
// overrides it, see GC3_NETWORK: a name, a network as 10.0.0.0/8, or !name for any other; several with commas.
Result<Interface> choose_interface(const std::string& wish, const std::optional<Endpoint>& towards);
// Whether the address is one of this host.
bool is_of_this_host(const Endpoint& endpoint);

// Listens on the interface; port 0: one of the system's choice.
Result<FileDescriptor> listen_on(const Interface& interface, std::uint16_t port);
Endpoint address_at(int socket);

// A connection that carries frames: a word that identifies the protocol, the number of bytes, the bytes.
class Frames {
 public:
  explicit Frames(FileDescriptor socket);

  int descriptor() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  // Whether what has arrived is of another version of gc3.
  bool has_other_version() const { return other_version_; }
  // Reads what has arrived, but no more than a frame of `most` bytes needs. False: the other end has closed, or what it
  // sends is no frame of at most so many bytes.
  bool fill(std::size_t most);
  // The next frame that has arrived completely.
  std::optional<std::string> next();
  // Queues a frame. False: the other end has not read for too long.
  bool queue(std::string_view payload);
  // Sends of what is queued as much as the system takes. False: the connection is broken.
  bool flush();
  bool put(std::string_view payload) { return queue(payload) && flush(); }
  bool has_unsent() const { return !out_.empty(); }
  // Whether the other end's system has acknowledged what the system here has sent, which it does for a stopped process.
  bool acknowledged() const;
  void close() { socket_ = FileDescriptor(); }

 private:
  FileDescriptor socket_;
  std::string in_;
  std::size_t taken_ = 0;  // bytes at the beginning of `in_` that `next` has returned
  std::string out_;
  bool other_version_ = false;
};

}  // namespace gc3::core
