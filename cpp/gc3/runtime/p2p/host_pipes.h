// Messages between ranks on different hosts: the records of a pipe (pipe.h), carried by a transport.
//
// A sender puts records into a pipe in its own memory, as for a receiver on its host, and push() sends what is in it,
// many records in one message of the transport. The receiver reads them where the message has arrived. Nothing of the
// caller's memory is read or written by the transport, so a call that has ended has no message under way.
//
// Each rank has two ends: one that sends, and one that receives and is called by the senders. So any rank can connect
// to any other without an agreement, whenever it first has a message for it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/waiter.h"
#include "gc3/runtime/p2p/pipe.h"
#include "gc3/transport/transport.h"

namespace gc3::p2p {

// Bytes of a long message that are sent at a time.
inline constexpr std::uint64_t kHostPart = (std::uint64_t{1} << 16U) - kWord - sizeof(MessageHead);

class HostPipes {
 public:
  // One end of this rank. `number`: its own, among the ends of all ranks.
  using Make =
      std::function<Result<std::unique_ptr<transport::Transport>>(std::uint32_t number, const std::string& secret)>;
  struct Options {
    std::vector<std::uint32_t> hosts = {};  // by rank; empty: as the group says
    Make make = {};                         // for tests: instead of TCP
  };

  // Collective, before other calls of the group. None if all ranks are on one host.
  static Result<std::unique_ptr<HostPipes>> create(core::Group& group, Options options,
                                                   const core::Interrupted& interrupted);

  // Whether a rank is on another host.
  bool apart(std::uint32_t rank) const { return hosts_[rank] != hosts_[rank_]; }

  // The pipe to a rank; push() sends the records that are put into it.
  Result<PipeSender> open(std::uint32_t to);
  bool push(std::uint32_t to);
  // Whether a part of a long message can be sent now, which is not put into the pipe.
  bool has_room(std::uint32_t to) const;
  void send_part(std::uint32_t to, const MessageHead& head, const std::uint8_t* data, std::uint64_t bytes);
  // The receiver has given so much of what was sent unasked to its caller; see PipeSender::afford.
  void take_back(std::uint32_t to, std::uint64_t taken);

  // The next record from a rank; valid until next().
  Record look(std::uint32_t source) const;
  void next(std::uint32_t source);
  // Tells the sender that everything before has arrived.
  void confirm(std::uint32_t source);
  // What a rank has sent breaks the protocol.
  void refuse(std::uint32_t source, const std::string& why);

  // Whether anything has moved.
  bool progress();
  // Whether the system has everything that was sent to a rank.
  bool has_left(std::uint32_t to) const;
  // Whether the rank has it.
  bool has_all(std::uint32_t to) const;
  // Why messages to or from a rank do not arrive any more; none: they may.
  std::optional<Diagnostic> problem(std::uint32_t peer) const;
  // Why messages to a rank, or from one, have no connection, as far as known; empty: they have one, or none was begun.
  std::string why_not(std::uint32_t peer, bool sends) const;
  // Descriptors that are readable when progress() has work.
  std::array<int, 2> wake_descriptors() const;
  // To be called before sleeping on them. False: progress() has work already.
  bool arm() { return sending_->arm() && receiving_->arm(); }
  // "tcp, 10.0.0.1:4711": where this rank is called.
  std::string describe() const { return receiving_->describe(); }

 private:
  struct Line {
    std::unique_ptr<Pipe> pipe;
    PipeReceiver records;  // that have not been sent
    std::unique_ptr<std::uint8_t[]> slots;
    std::uint64_t sent = 0;
    std::uint64_t head = 0;   // of these, known to have been taken out
    std::uint64_t taken = 0;  // see take_back
    transport::Outlet* outlet = nullptr;
  };
  struct Arrivals {
    std::unique_ptr<std::uint8_t[]> slots;
    std::vector<std::uint64_t> words;
    transport::Inlet* inlet = nullptr;
    std::uint64_t read = 0;  // bytes of the message that is being read
  };

  HostPipes(core::Group& group, std::vector<std::uint32_t> hosts);
  std::uint32_t sender_number(std::uint32_t rank) const { return static_cast<std::uint32_t>(hosts_.size()) + rank; }
  transport::LinkId link_between(std::uint32_t from, std::uint32_t to) const {
    return static_cast<transport::LinkId>(from * hosts_.size() + to);
  }
  transport::Inlet* open_inlet(std::uint32_t sender, transport::LinkId link);
  std::uint8_t* free_slot(Line& line) const;
  void send(Line& line, std::uint64_t bytes);

  core::Group& group_;
  std::uint32_t rank_;
  std::vector<std::uint32_t> hosts_;
  std::vector<std::string> addresses_;  // of the ends that receive, by rank
  std::vector<Line> lines_;             // by rank; memory that the transports use, so it outlives them
  std::vector<Arrivals> arrivals_;
  std::unique_ptr<transport::Transport> sending_;
  std::unique_ptr<transport::Transport> receiving_;
};

// Where a rank sleeps that waits for messages of other hosts.
class HostSleep final : public core::Waiter::Elsewhere {
 public:
  // `arm`: whether there is nothing to do, see HostPipes::arm. Null pipes: there are no other hosts.
  HostSleep(const HostPipes* pipes, std::function<bool()> arm) : pipes_(pipes), arm_(std::move(arm)) {}
  bool sleep(std::chrono::nanoseconds at_most) override;

 private:
  const HostPipes* pipes_;
  std::function<bool()> arm_;
};

}  // namespace gc3::p2p
