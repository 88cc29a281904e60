// Two processes prove to each other that they know the same secret, before either parses the other's message.
//
// The host sends a fresh random number, the guest another one with its proof, the host its own proof. A proof covers
// both numbers, the role of its sender and the text it sends, so that it cannot be replayed, reflected, or attached to
// another text. Without a secret it shows only that both follow the same protocol. This code does not send messages
// itself; they have fixed sizes, so that a stream can carry them as well.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gc3/base/result.h"
#include "gc3/base/sha256.h"

namespace gc3::core {

using Nonce = Digest;

class Handshake {
 public:
  enum class Role : std::uint8_t { host = 1, guest = 2 };

  static Result<Nonce> new_nonce();

  // `job`: what the secret is used for; a proof for one job is invalid for another.
  Handshake(std::string_view secret, std::string_view job, const Nonce& host, const Nonce& guest);

  // The proof that `role` sends before `text`.
  Digest proof(Role role, std::string_view text) const;
  bool proven(Role role, std::string_view text, const Digest& proof) const {
    return same(this->proof(role, text), proof);
  }

 private:
  Digest key_;
  Nonce host_;
  Nonce guest_;
};

}  // namespace gc3::core
