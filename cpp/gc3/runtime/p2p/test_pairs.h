// Ranks that send each other messages, as processes, for tests.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/test_sanitized.h"
#include "gc3/runtime/core/meeting/test_meeting.h"
#include "gc3/runtime/p2p/messenger.h"
#include "gc3/transport/fake.h"
#include "gc3/transport/tcp.h"

namespace gc3::p2p::testing {

using core::testing::Process;
using gc3::testing::kSanitized;

using Bytes = std::vector<std::uint8_t>;

// The smallest that may be set: messages that are long enough are read at once.
constexpr std::uint64_t kAtOnce = 4096;

// A group and its messages, as one rank has them.
struct Rank {
  Rank(std::uint32_t rank, std::uint32_t size, bool reads, double timeout_s = 30, std::uint64_t least_read = kAtOnce,
       HostPipes::Options hosts = {}) {
    group = world(rank, size, reads, timeout_s, least_read);
    if (hosts.hosts.empty()) hosts.hosts.assign(size, 0);
    auto pipes = HostPipes::create(*group, std::move(hosts), {});
    if (!pipes.ok()) _exit(2);
    messages = std::make_unique<Messenger>(*group, std::move(pipes).value());
  }

  static std::unique_ptr<core::Group> world(std::uint32_t rank, std::uint32_t size, bool reads = true,
                                            double timeout_s = 30, std::uint64_t least_read = kAtOnce) {
    core::Group::Options options;
    options.timeout_s = timeout_s;
    options.single_copy = reads;
    options.probe.mode = core::ProbeWish::Mode::given;
    options.probe.given.set("read_moved", least_read);
    auto made = core::Group::world(core::testing::meeting_of(rank, size), options);
    if (!made.ok()) {
      std::fprintf(stderr, "rank %u: %s\n", rank, made.error().str().c_str());
      _exit(2);
    }
    return std::move(made).value();
  }

  std::uint32_t rank() const { return group->rank(); }
  std::uint32_t size() const { return group->size(); }
  Status barrier() const {
    GC3_CHECK(group->begin({core::CallKind::barrier}));
    GC3_CHECK(group->exchange({}, {}));
    group->finish();
    return {};
  }

  std::unique_ptr<core::Group> group;
  std::unique_ptr<Messenger> messages;
};

// What a rank does; it returns what is wrong, nothing if all is well.
using Body = std::function<std::string(Rank& me)>;

struct World {
  std::uint32_t size = 2;
  bool reads = true;  // each other's memory
  double timeout_s = 30;
  std::uint64_t least_read = kAtOnce;  // bytes; shorter ones only if the sender does not send them in time
  HostPipes::Options hosts = {};
};

// Ranks in blocks of `per_host` on hosts that are taken to be several; their messages go over TCP on the loopback
// interface, and `fake` delays them.
inline World apart(std::uint32_t size, std::uint32_t per_host, std::optional<transport::Fake::Options> fake = {},
                   double timeout_s = 30) {
  World world{size, true, timeout_s};
  for (std::uint32_t r = 0; r < size; ++r) world.hosts.hosts.push_back(r / per_host);
  world.hosts.make = [fake](std::uint32_t number,
                            const std::string& secret) -> Result<std::unique_ptr<transport::Transport>> {
    GC3_ASSIGN(std::unique_ptr<transport::Transport> tcp, transport::Tcp::create(number, "127.0.0.1", secret));
    if (!fake) return tcp;
    transport::Fake::Options own = *fake;
    own.seed = fake->seed * 1000 + number;
    return std::unique_ptr<transport::Transport>(new transport::Fake(std::move(tcp), own));
  };
  return world;
}

inline std::vector<Process> begin(const World& world, const Body& body) {
  std::vector<Process> ranks;
  for (std::uint32_t r = 0; r < world.size; ++r) {
    ranks.emplace_back([&world, &body, r]() -> std::string {
      Rank me(r, world.size, world.reads, world.timeout_s, world.least_read, world.hosts);
      return body(me);
    });
  }
  return ranks;
}

inline void run(const World& world, const Body& body) {
  std::vector<Process> ranks = begin(world, body);
  for (std::size_t r = 0; r < ranks.size(); ++r) CHECK_MESSAGE(ranks[r].succeeds(), "rank ", r);
}

// On one host and on as many as ranks, with delays and without.
inline void run_anywhere(std::uint32_t ranks, const Body& body) {
  for (const World& world : {World{ranks}, apart(ranks, 1), apart(ranks, 1, transport::Fake::Options{7})}) {
    run(world, body);
  }
}

// The bytes of a message that nobody else sends. Sanitizers do not check how they are made, byte by byte, which would
// take most of the time of the tests; what they are moved and compared with is checked.
__attribute__((no_sanitize("address,thread,undefined"))) inline void put_content(std::uint8_t* at, std::uint64_t bytes,
                                                                                 std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  for (std::uint64_t i = 0; i < bytes; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    at[i] = static_cast<std::uint8_t>(state >> 56U);
  }
}
inline Bytes content(std::uint64_t bytes, std::uint64_t seed) {
  Bytes made(bytes);
  put_content(made.data(), bytes, seed);
  return made;
}

inline std::string failed(const Status& status) { return status.ok() ? "" : status.error().str(); }

}  // namespace gc3::p2p::testing

#define GC3_EXPECT(condition, said) \
  if (!(condition)) return std::string(#condition) + ": " + (said)
#define GC3_EXPECT_OK(expr)                                 \
  if (const auto gc3_outcome_ = (expr); !gc3_outcome_.ok()) \
  return std::string(#expr) + ": " + gc3_outcome_.error().str()
