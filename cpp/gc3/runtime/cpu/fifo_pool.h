// The FIFOs of a communicator. They belong to it, not to a program: programs that run one after the other use the same
// connections, whose message numbers continue.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/cpu/host_links.h"
#include "gc3/runtime/interp/fifo_geometry.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cpu {

using interp::FifoGeometry;

class ProcessProgram;

class FifoPool {
 public:
  // Both ends of a connection; a rank uses its own. The last two are null within a host.
  using Ends = HostLinks::Opened;

  // `links`: null if all ranks are on one host.
  FifoPool(core::Group& group, HostLinks* links) : group_(group), links_(links) {}

  // Collective, within a call: allocates the connections of the plan that have no memory yet.
  Status open(const interp::Plan& plan, const FifoGeometry& geometry, const core::Interrupted& interrupted);
  // An open connection; the reference stays valid.
  Ends& ends(const interp::Plan& plan, const FifoGeometry& geometry, std::uint32_t connection) {
    return connections_[geometry].at(key(plan, connection));
  }
  // Sets the ends of the connections of `program` to the state in which the previous program left them.
  void hand_to(ProcessProgram& program) {
    if (holder_ != &program) change_holder(program);
  }

 private:
  using Key = std::array<std::uint32_t, 3>;  // sender, receiver, channel
  static Key key(const interp::Plan& plan, std::uint32_t connection);
  void change_holder(ProcessProgram& program);
  // Those between hosts; takes them out of `missing`.
  Status open_between_hosts(std::vector<Key>& missing, std::map<Key, Ends>& open, const FifoGeometry& geometry,
                            std::uint64_t bytes, const core::Interrupted& interrupted);

  core::Group& group_;
  HostLinks* links_;
  ProcessProgram* holder_ = nullptr;
  std::map<FifoGeometry, std::map<Key, Ends>> connections_;
  std::vector<core::Mapping> memory_;
};

}  // namespace gc3::cpu
