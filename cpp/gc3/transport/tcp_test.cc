// The own TCP transport: messages between two ends in one process, credit, strangers, and what breaks the protocol.
#include "gc3/transport/tcp.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gc3/transport/fake.h"
#include "gc3/transport/test_ends.h"

namespace gc3::transport {
namespace {

using testing::carries;
using testing::kSlots;
using testing::Line;
using testing::meet;
using testing::until;

constexpr const char* kSecret = "a secret of a communicator";

std::unique_ptr<Tcp> end(std::uint32_t rank, const std::string& secret = kSecret) {
  auto made = Tcp::create(rank, "127.0.0.1", secret);
  REQUIRE_MESSAGE(made.ok(), made.error().str());
  return std::move(made).value();
}

TEST_CASE("messages of all lengths arrive, in both directions and on several connections") {
  const auto a = end(0);
  const auto b = end(1);
  REQUIRE(meet(*a, *b));
  std::vector<std::unique_ptr<Line>> lines;
  for (LinkId link = 0; link < 3; ++link) {
    lines.push_back(link == 1 ? std::make_unique<Line>(*b, 1, *a, 0, link)
                              : std::make_unique<Line>(*a, 0, *b, 1, link));
  }
  CHECK(carries(lines, *a, *b, 100));
  CHECK(until(*a, *b, [&] { return a->idle() && b->idle(); }));
  CHECK(a->failures().empty());
}

TEST_CASE("a message comes to where it is expected, and the next one only when that is said of it") {
  const auto a = end(0);
  const auto b = end(1);
  REQUIRE(meet(*a, *b));
  Line line(*a, 0, *b, 1, 0);
  const std::vector<std::uint8_t> longer = testing::message_of(3, 300'000);
  const std::vector<std::uint8_t> shorter = testing::message_of(4, 100);
  line.expect(longer.size());
  line.send(longer);
  line.send(longer);
  line.send(shorter);
  REQUIRE(until(*a, *b, [&] { return line.has_arrived(); }));
  CHECK(line.is_where_expected());
  CHECK(line.take() == longer);
  line.expect(longer.size());  // before it is read
  REQUIRE(until(*a, *b, [&] { return line.has_arrived(); }));
  CHECK(line.is_where_expected());
  CHECK(line.take() == longer);
  line.expect(longer.size());
  REQUIRE(until(*a, *b, [&] { return line.has_arrived(); }));
  CHECK(!line.is_where_expected());
  CHECK(line.take() == shorter);
}

TEST_CASE("what comes behind a long message is taken without more input, however many peers there are") {
  const auto b = end(0);
  std::vector<std::unique_ptr<Tcp>> peers;
  for (std::uint32_t rank = 1; rank <= 8; ++rank) {
    peers.push_back(end(rank));
    REQUIRE(b->connect(rank, peers.back()->address()).ok());
    REQUIRE(peers.back()->connect(0, b->address()).ok());
    REQUIRE(until(*peers.back(), *b, [&] { return b->connected(rank) && peers.back()->connected(0); }));
  }
  Line line(*peers[0], 1, *b, 0, 0);
  const std::vector<std::uint8_t> longer = testing::message_of(3, 300'000);
  const std::vector<std::uint8_t> shorter = testing::message_of(4, 1);
  line.send(longer);
  line.send(shorter);
  REQUIRE(until(*peers[0], *b, [&] { return line.has_arrived(); }));
  CHECK(line.take() == longer);
  REQUIRE(until(*peers[0], *b, [&] { return line.has_arrived(); }));
  CHECK(line.take() == shorter);
}

TEST_CASE("an end that was abandoned sends nothing, and gives no credit") {
  const auto a = end(0);
  const auto b = end(1);
  REQUIRE(meet(*a, *b));
  Line to_b(*a, 0, *b, 1, 0);
  Line to_a(*b, 1, *a, 0, 1);
  const std::vector<std::uint8_t> sent = {1, 2, 3};
  for (const bool last : {false, true}) {  // credit is due for two
    to_a.send(sent);
    REQUIRE(until(*a, *b, [&] { return to_a.has_arrived(); }));
    if (last) a->abandon();
    CHECK(to_a.take() == sent);
  }
  to_b.send(sent);
  CHECK(a->idle());
  CHECK(to_a.head() == 0);
}

TEST_CASE("messages that are delayed by any seed arrive whole and in the order of their connection") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Fake a(end(0), {seed, 30, {}});
    Fake b(end(1), {seed + 1000, 3, {}});
    REQUIRE(meet(a, b));
    std::vector<std::unique_ptr<Line>> lines;
    for (LinkId link = 0; link < 4; ++link) {
      lines.push_back(link % 2 == 1 ? std::make_unique<Line>(b, 1, a, 0, link)
                                    : std::make_unique<Line>(a, 0, b, 1, link));
    }
    CHECK_MESSAGE(carries(lines, a, b, 15), "seed ", seed);
  }
}

TEST_CASE("credit comes for half of the slots, beside data, and at once to a sender that has none") {
  const auto a = end(0);
  const auto b = end(1);
  REQUIRE(meet(*a, *b));
  Line there(*a, 0, *b, 1, 0);
  Line back(*b, 1, *a, 0, 1);
  const std::vector<std::uint8_t> message(100, 7);
  const auto pass = [&](Line& line) {
    line.send(message);
    REQUIRE(until(*a, *b, [&] { return line.has_arrived(); }));
    line.take();
  };
  pass(there);
  CHECK(until(*a, *b, [n = 0]() mutable { return ++n > 100; }));
  CHECK(there.head() == 0);  // one of four slots
  pass(back);
  CHECK(there.head() == 1);  // came with the message
  pass(there);
  pass(there);
  CHECK(until(*a, *b, [&] { return there.head() == 3; }));
  for (std::uint32_t i = 0; i < kSlots; ++i) there.send(message);
  REQUIRE(until(*a, *b, [&] { return there.has_arrived(); }));
  CHECK(!there.can_send());
  CHECK(until(*a, *b, [n = 0]() mutable { return ++n > 100; }));
  there.take();  // the sender has used all its credit
  CHECK(until(*a, *b, [&] { return there.can_send(); }));
}

// Nobody reads between calls, so a peer's window may be zero for any time.
TEST_CASE("a connection has no limit of time for data under way") {
  const auto a = end(0);
  const auto b = end(1);
  REQUIRE(meet(*a, *b));
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    unsigned limit = 0;
    socklen_t length = sizeof limit;
    const int descriptor = std::stoi(entry.path().filename().string());
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &length) != 0) continue;
    ++seen;
    CHECK(limit == 0);
  }
  CHECK(seen >= 4);  // two listeners, two ends
}

core::FileDescriptor stranger(const Transport& to) {
  const auto address = core::numeric_endpoint(to.address());
  core::FileDescriptor made(socket(address->get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(connect(made.get(), address->get(), address->length) == 0);
  return made;
}

TEST_CASE("strangers on the port do no harm, whatever they send") {
  const auto a = end(0);
  const auto b = end(1);
  REQUIRE(a->connect(1, b->address()).ok());
  std::mt19937 random(3);
  std::vector<core::FileDescriptor> strangers;
  for (int i = 0; i < 100; ++i) {  // more than there are places
    strangers.push_back(stranger(*a));
    std::vector<std::uint8_t> noise(random() % 300);
    for (auto& byte : noise) byte = static_cast<std::uint8_t>(random());
    if (!noise.empty()) CHECK(send(strangers.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL) > 0);
    a->progress();
  }
  REQUIRE(b->connect(0, a->address()).ok());
  CHECK(until(*a, *b, [&] { return a->connected(1) && b->connected(0); }));
  std::vector<std::unique_ptr<Line>> lines;
  lines.push_back(std::make_unique<Line>(*a, 0, *b, 1, 0));
  CHECK(carries(lines, *a, *b, 10));
}

TEST_CASE("a rank without the secret is not connected, on either side") {
  const auto a = end(0);
  const auto b = end(1, "another secret");
  REQUIRE(a->connect(1, b->address()).ok());
  REQUIRE(b->connect(0, a->address()).ok());
  CHECK(until(*a, *b, [n = 0]() mutable { return ++n > 3000; }));
  CHECK(!a->connected(1));
  CHECK(!b->connected(0));
}

TEST_CASE("addresses that are none are refused") {
  const auto a = end(0);
  CHECK(!a->connect(1, "").ok());
  CHECK(!a->connect(1, std::string(20, '\xff')).ok());
  CHECK(!a->connect(1, std::string(200, '\4')).ok());
  CHECK(!Tcp::create(0, "no.such.host", kSecret).ok());
}

TEST_CASE("every field of a message is checked: a peer that breaks the protocol is reported, and nothing is written") {
  const auto refuses = [](std::uint32_t peer, LinkId link, std::uint64_t flag, std::uint64_t bytes) {
    Links links;
    std::vector<std::uint8_t> data(4 * 64);
    std::vector<std::uint64_t> arrivals(8);
    Inlet inlet;
    inlet.peer = 5;
    inlet.link = 9;
    inlet.slots = 4;
    inlet.slot_bytes = inlet.slot_stride = 64;
    inlet.data = data.data();
    inlet.arrivals = arrivals.data();
    links.add(std::move(inlet));
    CHECK(links.begin(5, 9, 1, 10).ok());  // message 0 is arriving
    return !links.begin(peer, link, flag, bytes).ok();
  };
  CHECK(!refuses(5, 9, 2, 64));
  CHECK(!refuses(5, 9, (std::uint64_t{77} << 48U) | 4, 0));  // the tag is the call's, and not looked at here
  CHECK(refuses(4, 9, 2, 64));                               // another peer
  CHECK(refuses(5, 8, 2, 64));                               // no such connection
  CHECK(refuses(5, 9, 2, 65));                               // longer than a slot
  CHECK(refuses(5, 9, 1, 10));                               // again
  CHECK(refuses(5, 9, 0, 10));                               // before the first one
  CHECK(refuses(5, 9, 5, 10));                               // without credit

  Links links;
  std::uint64_t head = 2;
  Outlet outlet;
  outlet.peer = 5;
  outlet.link = 9;
  outlet.head = &head;
  outlet.sent = 6;
  links.add(outlet);
  CHECK(!links.credit(5, 9, 7).ok());  // more than was sent
  CHECK(!links.credit(5, 9, 1).ok());  // less than before
  CHECK(!links.credit(4, 9, 3).ok());
  CHECK(!links.credit(5, 8, 3).ok());
  CHECK(head == 2);
  CHECK(links.credit(5, 9, 6).ok());
  CHECK(head == 6);
}

TEST_CASE("a peer that sends no frames, or frames that are not due, is hostile; one that closes has left") {
  for (const bool knows : {false, true}) {
    const auto a = end(0);
    auto b = end(1);
    REQUIRE(meet(*a, *b));
    if (knows) {  // a valid frame of a connection that rank 0 does not have
      Outlet outlet;
      outlet.peer = 0;
      outlet.link = 3;
      std::uint64_t head = 0;
      outlet.head = &head;
      const std::uint8_t data[8] = {};
      b->send(b->links()->add(outlet), 1, data, sizeof data);
      REQUIRE(until(*a, *b, [&] { return !a->failures().empty(); }));
      CHECK(a->failures().at(1).kind == Failure::Kind::hostile);
      CHECK(a->failures().at(1).reason == "it has sent data for connection 3");
    } else {
      b.reset();
      REQUIRE(until(*a, *a, [&] { return !a->failures().empty(); }));
      CHECK(a->failures().at(1).kind == Failure::Kind::left);
    }
  }
}

TEST_CASE("frames with any byte changed are refused") {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    std::array<int, 2> pair{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()) == 0);
    TcpStream sender((core::FileDescriptor(pair[0])), 1);
    std::array<int, 2> spoiled{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, spoiled.data()) == 0);
    TcpStream receiver((core::FileDescriptor(spoiled[0])), 1);
    const core::FileDescriptor wire(pair[1]);
    const core::FileDescriptor other(spoiled[1]);
    Links links;
    std::uint64_t head = 0;
    Outlet outlet;
    outlet.peer = 1;
    outlet.head = &head;
    outlet.sent = 3;
    links.add(outlet);
    sender.add_credit(0, 2);
    sender.flush();
    std::array<std::uint8_t, 24> frame{};
    REQUIRE(recv(wire.get(), frame.data(), frame.size(), 0) == 24);
    frame[random() % frame.size()] ^= static_cast<std::uint8_t>(1 + random() % 255);
    REQUIRE(send(other.get(), frame.data(), frame.size(), 0) == 24);
    receiver.receive(links, [](Inlet&, std::uint64_t, const std::uint8_t*) {});
    CHECK(receiver.nonsense() == "it has sent something else than frames");
    CHECK(head == 0);
  }
}

}  // namespace
}  // namespace gc3::transport
