// The connections of a communicator between ranks on different hosts: what carries them, their FIFOs in private memory
// at each end, and why one of them does not work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/base/transport_kind.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/waiter.h"
#include "gc3/runtime/cpu/arena.h"
#include "gc3/runtime/interp/fifo_geometry.h"
#include "gc3/runtime/interp/plan.h"
#include "gc3/transport/offer.h"
#include "gc3/transport/transport.h"

namespace gc3::cpu {

class HostLinks {
 public:
  // `secret`: of the communicator, the same on all its ranks.
  using Make = std::function<Result<std::unique_ptr<transport::Transport>>(std::uint32_t rank, std::string secret)>;
  // What carries the messages of a job, the same on all its ranks: the last of the transports that each of them has.
  struct Choice {
    TransportKind kind = TransportKind::none;
    transport::Offer::Make make = {};
    std::string reason = {};  // why it is not a later one, for describe()
  };
  struct Options {
    std::vector<std::uint32_t> hosts = {};      // where the ranks are: those of one host have the same number
    Make make = {};                             // for tests: instead of a transport of the table
    std::shared_ptr<const Choice> choice = {};  // that of the job, once it is made; null: `choose` makes it
  };

  // None if all ranks are on one host.
  static std::unique_ptr<HostLinks> create(core::Group& group, Options options);

  const Options& options() const { return options_; }
  // Whether the two ranks are on different hosts.
  bool apart(std::uint32_t a, std::uint32_t b) const { return options_.hosts[a] != options_.hosts[b]; }
  bool apart(const interp::Plan& plan) const;

  // Collective, within a call: what carries the messages.
  Status choose(const core::Interrupted& interrupted);
  TransportKind kind() const;

  // Collective, within a call: connects this rank to `peers`. `progress`: instead of that of the transport.
  Status connect(const std::vector<std::uint32_t>& peers, const core::Interrupted& interrupted,
                 const std::function<bool()>& progress = {});

  // A connection between `sender` and `receiver`, of which this rank may be one. All ranks open the same ones in the
  // same order. Null pointers at other ranks.
  struct Opened {
    interp::SendEnd send;
    interp::RecvEnd recv;
    transport::Outlet* outlet = nullptr;
    transport::Inlet* inlet = nullptr;
  };
  Result<Opened> open(std::uint32_t sender, std::uint32_t receiver, const interp::FifoGeometry& geometry,
                      std::uint64_t bytes);

  // What carries messages between hosts, and why not something faster.
  std::string describe() const;
  transport::Transport& transport() { return *transport_; }
  // Sends and receives nothing any more, see Transport.
  void abandon() {
    if (transport_ != nullptr) transport_->abandon();
  }
  // Why the messages that this rank awaits from `peers` will not arrive; none: they may.
  std::optional<Diagnostic> problem(const std::vector<std::uint32_t>& peers) const;
  // A message has another length than its step.
  void note_length(const transport::Inlet& inlet, std::uint64_t sent, std::uint64_t due);

 private:
  HostLinks(core::Group& group, Options options) : group_(group), options_(std::move(options)) {}
  Status start(const core::Interrupted& interrupted);
  // What this rank could use: each transport but none, in the order of their numbers.
  Result<std::vector<transport::Offer>> offers() const;
  Result<std::unique_ptr<transport::Transport>> make(std::string secret) const;

  core::Group& group_;
  Options options_;
  std::vector<Arena> memory_;                        // of the FIFOs; outlives the transport, which writes to it
  std::unique_ptr<transport::Transport> transport_;  // made when it is first needed
  std::vector<std::string> addresses_;               // by rank
  transport::LinkId next_ = 0;
};

}  // namespace gc3::cpu
