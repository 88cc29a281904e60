// Messages over UCX, which serves InfiniBand, RoCE, EFA and TCP alike: one worker for each communicator, and an active
// message for each of ours. Longer ones are read where UCX has received them, or go straight into their slot.
//
// UCX lets anybody send who has the worker's address. So every message has a word that only the two ranks can compute,
// and one without it is dropped. The data itself is neither authenticated nor encrypted: for trusted networks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gc3/transport/transport.h"
#include "gc3/transport/ucx_library.h"

namespace gc3::transport {

class Ucx final : public Transport {
 public:
  // What UCX calls the devices of a network interface: itself, and the RDMA devices behind it.
  static std::string devices_of(const std::string& interface);
  // `devices`: the network interfaces that UCX may use, as UCX_NET_DEVICES has them; empty: all.
  static Result<std::unique_ptr<Ucx>> create(std::shared_ptr<const UcxLibrary> library, std::uint32_t rank,
                                             const std::string& devices, std::string secret);
  ~Ucx() override;

  std::string address() const override { return address_; }
  Status connect(std::uint32_t peer, std::string_view address) override;
  bool connected(std::uint32_t peer) const override { return peers_.contains(peer); }
  void send(Outlet& to, std::uint64_t flag, const std::uint8_t* from, std::uint64_t bytes) override;
  void credit(Inlet& from) override;
  bool progress() override;
  bool idle() const override { return requests_ == 0; }
  int wake_descriptor() const override { return descriptor_; }
  bool arm() override { return call().arm(worker_) == ucx::kOk; }
  void abandon() override;
  std::string describe() const override;

 private:
  struct Header;
  struct Peer {
    Ucx* owner = nullptr;
    std::uint32_t rank = 0;
    ucx::Endpoint endpoint = nullptr;
    std::string address;
    std::uint64_t there = 0;  // the word of messages to it
    std::uint64_t here = 0;   // and from it
    std::vector<Inlet*> inlets;
  };
  struct Arriving {  // by rendezvous
    Ucx* owner;
    Inlet* inlet;
    std::uint64_t flag;
    const std::uint8_t* at;
  };

  Ucx(std::shared_ptr<const UcxLibrary> library, std::uint32_t rank, std::string secret)
      : library_(std::move(library)), rank_(rank), secret_(std::move(secret)) {}
  const ucx::Table& call() const { return *library_->operator->(); }
  std::uint64_t word_of(std::uint32_t from, std::uint32_t to) const;
  void post(Peer& peer, Header header, const void* data, std::size_t bytes);
  ucx::Status take(const Header& header, void* data, std::size_t bytes, const ucx::HandlerParams::Received& how);
  void give_back(void* held) override { call().release_data(worker_, held); }
  void close_endpoints(bool force);
  std::string transports_of(const Peer& peer) const;

  static ucx::Status on_message(void* argument, const void* header, std::size_t header_bytes, void* data,
                                std::size_t bytes, const ucx::HandlerParams::Received* how);
  static void on_sent(void* request, ucx::Status status, void* peer);
  static void on_received(void* request, ucx::Status status, std::size_t bytes, void* arriving);
  static void on_error(void* peer, ucx::Endpoint endpoint, ucx::Status status);

  std::shared_ptr<const UcxLibrary> library_;
  std::uint32_t rank_;
  std::string secret_;
  ucx::Context context_ = nullptr;
  ucx::Worker worker_ = nullptr;
  int descriptor_ = -1;
  std::string address_;
  std::map<std::uint32_t, std::unique_ptr<Peer>> peers_;
  std::uint64_t requests_ = 0;  // that have not been completed
  std::vector<Inlet*> owing_;   // credit that is sent after the messages of a call of progress()
  bool in_progress_ = false;
  bool moved_ = false;
  bool abandoned_ = false;
};

}  // namespace gc3::transport
