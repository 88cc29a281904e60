// What rank 0's leader sends and receives in jobs of many hosts, from the sizes of the real messages. Not part of the
// tests: run with `--no-skip --test-case="control traffic*"`; docs/hosts.md has the table.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "gc3/runtime/core/hosts/leaders.h"
#include "gc3/runtime/core/hosts/mirror_parts.h"
#include "gc3/runtime/core/meeting/handshake.h"

namespace gc3::core {
namespace {

constexpr double kFrame = 8;      // of Frames
constexpr double kLink = 1.25e9;  // bytes per second
constexpr double kBeatsPerSecond = 5;

std::vector<Host> hosts_of(std::uint32_t hosts, std::uint32_t each) {
  std::vector<Host> all;
  for (std::uint32_t h = 0; h < hosts; ++h) {
    Host host{"node" + std::to_string(h), "10.0.0.1", {}, {}};
    for (std::uint32_t r = 0; r < each; ++r) {
      host.ranks.push_back(h * each + r);
      host.processes.push_back(4711);
    }
    all.push_back(std::move(host));
  }
  return all;
}

template <class Does>
double seconds_of(Does does) {
  const auto start = std::chrono::steady_clock::now();
  does();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of rank 0's leader, for one other host: two proofs made and one checked.
double handshake_s() {
  const Nonce nonce = Handshake::new_nonce().value();
  const std::string claim(200, 'c');
  constexpr int kTimes = 200;
  return seconds_of([&] {
           for (int i = 0; i < kTimes; ++i) {
             const Handshake handshake("a secret of the job", "hosts|job#0", Handshake::new_nonce().value(), nonce);
             const Digest proof = handshake.proof(Handshake::Role::guest, claim);
             CHECK(handshake.proven(Handshake::Role::guest, claim, proof));
             CHECK(handshake.proof(Handshake::Role::host, claim) != proof);
           }
         }) /
         kTimes;
}

TEST_CASE("control traffic of rank 0's leader" * doctest::skip()) {
  constexpr std::uint32_t kEach = 8;
  const double proofs = sizeof(Head) + sizeof(Nonce) + sizeof(Digest);
  const double one = handshake_s();
  std::printf(
      "| hosts of %u ranks | meeting: MB out | time to meet | messages/s, kB/s while idle | an exchange: MB out | "
      "time |\n|---|---|---|---|---|---|\n",
      kEach);
  for (const std::uint32_t hosts : {2U, 64U, 1000U, 10000U}) {
    const std::vector<Host> all = hosts_of(hosts, kEach);
    std::string table;
    const double packing = seconds_of([&] { table = pack_hosts(all); });
    const double unpacking = seconds_of([&] { CHECK(unpack_hosts(table, hosts * kEach).ok()); });
    const double others = hosts - 1;
    const double meeting = others * (3 * kFrame + sizeof(Challenge) + proofs + static_cast<double>(table.size()));
    const double beat = kFrame + sizeof(mirror::MessageHead);
    constexpr double kCall = 5 * sizeof(std::uint64_t);  // group_blocks::Recorded, of the call that exchanges
    const double block = kFrame + sizeof(mirror::MessageHead) + sizeof(mirror::Block) + kCall;
    const double exchange = others * (hosts - 1.0) * kEach * block;
    std::printf("| %u | %.3g | %.3g s | %.3g, %.3g | %.3g | %.3g s |\n", hosts, meeting / 1e6,
                others * one + packing * others + unpacking + meeting / kLink, 2 * others * kBeatsPerSecond,
                2 * others * kBeatsPerSecond * beat / 1e3, exchange / 1e6, exchange / kLink);
  }
}

}  // namespace
}  // namespace gc3::core
