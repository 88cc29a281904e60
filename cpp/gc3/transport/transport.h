// What carries the messages of a communicator between ranks on different hosts. All functions are called by one thread
// at a time, within a call, so nothing arrives between calls: it waits in the network.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "gc3/base/result.h"
#include "gc3/transport/links.h"

namespace gc3::transport {

// Why messages to or from a rank do not arrive any more.
struct Failure {
  // left: it has ended the connection, which is no error for a rank that awaits nothing from it. lost: a message did
  // not reach it. hostile: it has broken the protocol.
  enum class Kind : std::uint8_t { left, lost, hostile };
  Kind kind = Kind::left;
  std::string reason;
  std::chrono::steady_clock::time_point since;
};

class Transport {
 public:
  explicit Transport(std::shared_ptr<Links> links = std::make_shared<Links>()) : links_(std::move(links)) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // What another rank needs to connect. Ranks learn it from each other over a channel that they trust.
  virtual std::string address() const = 0;
  // Begins to connect; both ranks call it. progress() goes on with it, until connected().
  virtual Status connect(std::uint32_t peer, std::string_view address) = 0;
  virtual bool connected(std::uint32_t peer) const = 0;
  // Its address, and why it is not connected, as far as known.
  virtual std::string why_not(std::uint32_t) const { return {}; }

  // Sends a message. `from` is read until idle(), or until the receiver gives the credit for it.
  virtual void send(Outlet& to, std::uint64_t flag, const std::uint8_t* from, std::uint64_t bytes) = 0;
  // Tells the sender how many messages have been taken out.
  virtual void credit(Inlet& from) = 0;
  // Receives what has arrived, and goes on with sending. Whether anything has moved.
  virtual bool progress() = 0;
  // Whether all that was sent has left this rank's memory.
  virtual bool idle() const = 0;
  // Readable when progress() has work; valid as long as the transport.
  virtual int wake_descriptor() const = 0;
  // To be called before sleeping on it. False: progress() has work already.
  virtual bool arm() { return true; }
  // Sends and receives nothing from now on, and reads nothing in the caller's memory. For after an error.
  virtual void abandon() = 0;

  // "tcp, 10.0.0.1:4711".
  virtual std::string describe() const = 0;

  // By peer.
  const std::map<std::uint32_t, Failure>& failures() const { return failures_; }
  void fail(std::uint32_t peer, Failure::Kind kind, const std::string& reason) {
    Failure& failure =
        failures_.try_emplace(peer, Failure{kind, reason, std::chrono::steady_clock::now()}).first->second;
    if (kind > failure.kind) failure.kind = kind;
    if (kind == Failure::Kind::hostile) failure.reason = reason;
  }

  // A message of `inlet` has been taken out.
  void take(Inlet& inlet) {
    if (void*& held = inlet.held[inlet.taken % inlet.slots]) give_back(std::exchange(held, nullptr));
    ++inlet.taken;
    if (inlet.owes_credit()) credit(inlet);
  }

  const std::shared_ptr<Links>& links() const { return links_; }

 protected:
  // A message has arrived at `at`.
  void arrive(Inlet& inlet, std::uint64_t flag, const void* at) {
    Links::finish(inlet, flag, at);
    if (inlet.owes_credit()) credit(inlet);
  }

  // The receiver does not need this memory of the transport any more.
  virtual void give_back(void*) {}

  std::shared_ptr<Links> links_;

 private:
  std::map<std::uint32_t, Failure> failures_;
};

}  // namespace gc3::transport
