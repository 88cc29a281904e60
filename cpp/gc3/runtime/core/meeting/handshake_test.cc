#include "gc3/runtime/core/meeting/handshake.h"

#include <doctest/doctest.h>

namespace gc3::core {
namespace {

using Role = Handshake::Role;
constexpr const char* kSecret = "a secret of 24 bytes ...";

TEST_CASE("a process that knows the secret can prove it, and no other") {
  const Nonce host = Handshake::new_nonce().value();
  const Nonce guest = Handshake::new_nonce().value();
  CHECK(host != guest);
  const Handshake ours(kSecret, "job", host, guest);
  const Digest proof = Handshake(kSecret, "job", host, guest).proof(Role::guest, "hello");
  CHECK(ours.proven(Role::guest, "hello", proof));

  SUBCASE("another secret, or none") {
    CHECK_FALSE(Handshake("another", "job", host, guest).proven(Role::guest, "hello", proof));
    CHECK_FALSE(Handshake("", "job", host, guest).proven(Role::guest, "hello", proof));
  }
  SUBCASE("another job") { CHECK_FALSE(Handshake(kSecret, "Job", host, guest).proven(Role::guest, "hello", proof)); }
  SUBCASE("the host's own proof sent back") {
    CHECK_FALSE(ours.proven(Role::guest, "hello", ours.proof(Role::host, "hello")));
  }
  SUBCASE("an earlier proof, to a host with a new number") {
    const Nonce later = Handshake::new_nonce().value();
    CHECK_FALSE(Handshake(kSecret, "job", later, guest).proven(Role::guest, "hello", proof));
    CHECK_FALSE(Handshake(kSecret, "job", guest, host).proven(Role::guest, "hello", proof));
  }
  SUBCASE("another text") {
    CHECK_FALSE(ours.proven(Role::guest, "hello!", proof));
    CHECK_FALSE(ours.proven(Role::guest, "", proof));
  }
  SUBCASE("a proof that differs in one bit") {
    Digest changed = proof;
    changed[31] ^= 1U;
    CHECK_FALSE(ours.proven(Role::guest, "hello", changed));
  }
}

}  // namespace
}  // namespace gc3::core
