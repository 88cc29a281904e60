// For tests: ranks of one host that are taken to be on several, so that what goes between hosts runs between processes
// over loopback.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gc3/runtime/cpu/test_ranks.h"
#include "gc3/transport/fake.h"
#include "gc3/transport/tcp.h"

namespace gc3::testing {

// Ranks in blocks of `per_host`.
inline std::vector<std::uint32_t> hosts_of(std::uint32_t ranks, std::uint32_t per_host) {
  std::vector<std::uint32_t> hosts;
  for (std::uint32_t r = 0; r < ranks; ++r) hosts.push_back(r / per_host);
  return hosts;
}

// TCP, whose messages `fake` delays.
inline cpu::HostLinks::Make delayed(transport::Fake::Options fake) {
  return [fake](std::uint32_t rank, std::string secret) -> Result<std::unique_ptr<transport::Transport>> {
    GC3_ASSIGN(std::unique_ptr<transport::Transport> tcp, transport::Tcp::create(rank, "127.0.0.1", std::move(secret)));
    transport::Fake::Options own = fake;
    own.seed = fake.seed * 1000 + rank;
    return std::unique_ptr<transport::Transport>(new transport::Fake(std::move(tcp), own));
  };
}

inline std::unique_ptr<cpu::Communicator> join_hosts(std::uint32_t rank, std::vector<std::uint32_t> hosts,
                                                     cpu::HostLinks::Make make = {}, double timeout_s = 30) {
  const auto size = static_cast<std::uint32_t>(hosts.size());
  setenv("GC3_UCX", "off", 1);  // of a process of this rank
  auto made = cpu::Communicator::init(meeting_of(rank, size), {timeout_s, true, true, false},
                                      {std::move(hosts), std::move(make)});
  if (!expect(made.ok(), rank, made.ok() ? "" : made.error().str())) _exit(2);
  return std::move(made).value();
}

}  // namespace gc3::testing
