// For tests: ranks on several "hosts" of this machine, which meet through its loopback interface.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/meeting/network.h"

namespace gc3::core::testing {

// The ranks of each host, ascending.
using Layout = std::vector<std::vector<std::uint32_t>>;

inline Layout blocks(std::uint32_t hosts, std::uint32_t ranks_per_host) {
  Layout layout(hosts);
  for (std::uint32_t r = 0; r < hosts * ranks_per_host; ++r) layout[r / ranks_per_host].push_back(r);
  return layout;
}

// Has rank 0's listener; inherited by fork.
class Hosting {
 public:
  explicit Hosting(Layout layout, double timeout_s = 20) : layout_(std::move(layout)), timeout_s_(timeout_s) {
    const Interface loopback = choose_interface("lo", {}).value();
    listener_ = std::make_shared<FileDescriptor>(listen_on(loopback, 0).value());
    interface_ = loopback.str();
  }

  std::uint32_t size() const {
    std::uint32_t ranks = 0;
    for (const auto& host : layout_) ranks += static_cast<std::uint32_t>(host.size());
    return ranks;
  }
  const Layout& layout() const { return layout_; }
  Endpoint address() const { return address_at(listener_->get()); }

  Meeting meeting_of(std::uint32_t rank) const {
    Meeting meeting;
    meeting.rank = rank;
    meeting.size = size();
    meeting.job = "hosts test " + std::to_string(test_);
    meeting.timeout_s = timeout_s_;
    Route route;
    for (std::size_t h = 0; h < layout_.size(); ++h) {
      for (std::uint32_t local = 0; local < layout_[h].size(); ++local) {
        if (layout_[h][local] != rank) continue;
        route.here = {local, static_cast<std::uint32_t>(layout_[h].size())};
        route.here_job = meeting.job + " host " + std::to_string(h);
      }
    }
    route.address = address().str();
    if (rank == 0) {
      route.listener = listener_;
      route.interface = interface_;
    }
    meeting.route = std::move(route);
    return meeting;
  }

 private:
  Layout layout_;
  double timeout_s_;
  pid_t test_ = getpid();
  std::shared_ptr<FileDescriptor> listener_;
  std::string interface_;
};

// What a rank does; it returns what is wrong, or an empty text. Ranks for which `survives` is false are not waited for.
using Body = std::function<std::string(Group& group)>;

// `by_way_of`: where this rank finds rank 0, if not at its address.
inline pid_t start_rank(const Hosting& hosting, std::uint32_t rank, const Body& body, double timeout_s = 50,
                        const std::optional<Endpoint>& by_way_of = {}) {
  const pid_t process = fork();
  if (process != 0) return process;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string wrong;
  {
    Meeting meeting = hosting.meeting_of(rank);
    if (by_way_of) meeting.route->address = by_way_of->str();
    auto group = Group::world(meeting, {timeout_s, false, false});
    wrong = group.ok() ? body(*group.value()) : group.error().str();
  }
  if (!wrong.empty()) std::fprintf(stderr, "rank %u: %s\n", rank, wrong.c_str());
  _exit(wrong.empty() ? 0 : 1);
}

// Whether all that survive pass.
inline bool run_hosts(
    const Hosting& hosting, const Body& body,
    const std::function<bool(std::uint32_t)>& survives = [](std::uint32_t) { return true; }) {
  std::vector<pid_t> ranks;
  for (std::uint32_t r = 0; r < hosting.size(); ++r) ranks.push_back(start_rank(hosting, r, body));
  bool good = true;
  for (std::uint32_t r = 0; r < hosting.size(); ++r) {
    if (!survives(r)) continue;
    int status = 0;
    waitpid(ranks[r], &status, 0);
    CHECK_MESSAGE(status == 0, "rank ", r);
    good = good && status == 0;
  }
  for (std::uint32_t r = 0; r < hosting.size(); ++r) {
    if (survives(r)) continue;
    kill(ranks[r], SIGKILL);
    waitpid(ranks[r], nullptr, 0);
  }
  return good;
}

}  // namespace gc3::core::testing
