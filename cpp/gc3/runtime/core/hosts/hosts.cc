#include "gc3/runtime/core/hosts/hosts.h"

#include <algorithm>

namespace gc3::core {
namespace {

constexpr std::size_t kMostRuns = 8;  // of consecutive ranks named in one message

}  // namespace

std::string Host::str() const {
  std::string text;
  std::size_t runs = 0;
  for (std::size_t i = 0; i < ranks.size(); ++runs) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (runs == kMostRuns) {
      text += ", ...";
      break;
    }
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (last != i) text.append("-").append(std::to_string(ranks[last]));
    i = last + 1;
  }
  return "host " + name + " (rank" + (ranks.size() == 1 ? " " : "s ") + text + ")";
}

Hosts::Hosts(std::vector<Host> hosts, std::uint32_t own) : hosts_(std::move(hosts)), own_(own) {
  std::size_t ranks = 0;
  for (const Host& host : hosts_) ranks += host.ranks.size();
  host_of_.resize(ranks);
  for (std::uint32_t h = 0; h < hosts_.size(); ++h) {
    for (const std::uint32_t rank : hosts_[h].ranks) host_of_[rank] = h;
  }
}

std::int32_t Hosts::process(std::uint32_t rank) const {
  const Host& host = hosts_[of(rank)];
  return host.processes[static_cast<std::size_t>(std::ranges::find(host.ranks, rank) - host.ranks.begin())];
}

}  // namespace gc3::core
