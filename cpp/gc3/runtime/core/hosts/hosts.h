// The hosts of a job, and which ranks run on each. A host is a set of processes that have handed shared memory to each
// other; see group_hosts.cc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gc3::core {

struct Host {
  std::string name;                     // for people
  std::string address;                  // of the interface by which the other hosts reach it, without a port
  std::vector<std::uint32_t> ranks;     // of the job, ascending; the first one leads
  std::vector<std::int32_t> processes;  // their ids on that host

  std::string str() const;  // "host node1 (ranks 4-7)"
};

class Hosts {
 public:
  Hosts() = default;
  // Each rank from 0 to the last one is on one of `hosts`. `own`: the host of this process.
  Hosts(std::vector<Host> hosts, std::uint32_t own);

  bool several() const { return hosts_.size() > 1; }
  std::uint32_t own() const { return own_; }
  const std::vector<Host>& all() const { return hosts_; }
  std::uint32_t of(std::uint32_t rank) const { return host_of_.empty() ? 0 : host_of_[rank]; }
  bool is_here(std::uint32_t rank) const { return of(rank) == own_; }
  std::int32_t process(std::uint32_t rank) const;

 private:
  std::vector<Host> hosts_;
  std::uint32_t own_ = 0;
  std::vector<std::uint32_t> host_of_;  // by rank
};

}  // namespace gc3::core
