// How the hosts of a job meet: the leader of each host connects by TCP to rank 0, which leads its own host. So there is
// one connection for each further host, however many ranks there are. It stays open; see mirror.h.
//
// Anybody can connect to the port, so both ends prove first that they know the job's secret (handshake.h). Before that
// they read messages of a fixed form and a bounded size, and use nothing of them. A stranger costs rank 0 a descriptor
// for some seconds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/base/sha256.h"
#include "gc3/runtime/core/hosts/hosts.h"
#include "gc3/runtime/core/meeting/network.h"
#include "gc3/runtime/core/meeting/rendezvous.h"

namespace gc3::core {

struct LeadersMet {
  std::vector<Host> hosts;  // the first one is that of rank 0
  std::uint32_t own = 0;    // this process's host
  Digest key{};             // of the job: of what rank 0 has drawn, and the secret
  std::vector<Frames>
      lines;  // to the leaders of the hosts, by host; a leader other than rank 0 has that to host 0 only
};

// `here`: the ranks of this host and their processes. `drawn`: random; that of rank 0 counts.
Result<LeadersMet> meet_leaders(const Meeting& meeting, const Host& here, const Digest& drawn);

// What is said of this host, and compared by nobody: its name.
std::string name_of_this_host();

// The hosts as text, for the other ranks of a host, and back.
std::string pack_hosts(const std::vector<Host>& hosts);
Result<std::vector<Host>> unpack_hosts(std::string_view text, std::uint32_t ranks);

}  // namespace gc3::core
