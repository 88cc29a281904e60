// How two processes prove to each other that they know the same secret, before either looks at what the other says.
//
// The host sends a number that nobody has used before, the guest another one with its proof, the host its own proof. A
// proof covers both numbers, who gives it and what it says besides, so that none can be used again, turned round, or
// put before another text. Without a secret it shows only that both follow the same rules. Nothing here knows how the
// messages travel; they are of fixed sizes, so that a stream can carry them as well.
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

  // `job`: what the secret is used for; a proof for one job is none for another.
  Handshake(std::string_view secret, std::string_view job, const Nonce& host, const Nonce& guest);

  // What `role` sends before `text`.
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
