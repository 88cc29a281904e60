// Messages over TCP, for networks without anything faster. One connection for each pair of ranks that need one: the
// higher rank connects to the lower one's port.
//
// Anybody can connect to that port, or listen on it after the rank has ended. So both ends prove first that they know
// the communicator's secret (core/meeting/handshake.h), in messages of fixed size. Until then nothing is interpreted,
// and a stranger occupies one of a few places for a few seconds. The data itself is not encrypted.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gc3/runtime/core/meeting/handshake.h"
#include "gc3/runtime/core/meeting/network.h"
#include "gc3/runtime/core/sharing/file_descriptor.h"
#include "gc3/transport/tcp_stream.h"
#include "gc3/transport/transport.h"

namespace gc3::transport {

class Tcp final : public Transport {
 public:
  // Listens on a free port of `host`, a numeric address of this host. `secret`: of the communicator.
  static Result<std::unique_ptr<Tcp>> create(std::uint32_t rank, const std::string& host, std::string secret);
  ~Tcp() override;

  std::string address() const override { return address_.str(); }
  Status connect(std::uint32_t peer, std::string_view address) override;
  bool connected(std::uint32_t peer) const override { return streams_.contains(peer); }
  std::string why_not(std::uint32_t peer) const override;
  void send(Outlet& to, std::uint64_t flag, const std::uint8_t* from, std::uint64_t bytes) override;
  void credit(Inlet& from) override;
  bool progress() override;
  bool idle() const override;
  int wake_descriptor() const override { return epoll_.get(); }
  void abandon() override;
  std::string describe() const override { return "tcp, " + address_.str(); }

 private:
  using Clock = std::chrono::steady_clock;
  // A connection whose other end has not proven yet that it belongs to the communicator.
  struct Guest {
    core::FileDescriptor socket;
    Clock::time_point since;
    core::Nonce own{};
    core::Nonce other{};
    bool calls = false;      // this rank has connected, to `peer`
    std::uint32_t peer = 0;  // if it is known
    std::string input;
    std::size_t wanted = 0;  // bytes of the next message
    int step = 0;            // messages received
    bool failed = false;
  };
  struct Peer {
    std::unique_ptr<TcpStream> stream;
    std::vector<Inlet*> inlets;  // that have received anything
    bool watches_output = false;
    bool watched = false;
  };

  Tcp(std::uint32_t rank, std::string secret) : rank_(rank), secret_(std::move(secret)) {}
  void accept_guests();
  void call(std::uint32_t peer);
  bool go_on(Guest& guest);
  bool answer(Guest& guest);
  bool greet(Guest& guest);
  bool settle_in(Guest& guest);
  bool serve_guests();
  bool serve(Peer& peer);
  void push(Peer& peer);
  void watch(Peer& peer);
  void listen_if_expecting();
  core::Handshake handshake_of(const Guest& guest) const;

  std::uint32_t rank_;
  std::string secret_;
  core::Endpoint address_;
  core::FileDescriptor listener_;
  core::FileDescriptor epoll_;
  bool listens_ = false;
  std::map<std::uint32_t, core::Endpoint> expected_;  // by peer, with its address
  std::map<std::uint32_t, std::string> why_not_;      // by peer that this rank has called
  std::vector<std::unique_ptr<Guest>> guests_;
  std::map<std::uint32_t, Peer> streams_;
  Clock::time_point called_;  // when connecting was last tried
  bool abandoned_ = false;
};

}  // namespace gc3::transport
