#include "gc3/runtime/core/meeting/handshake.h"

#include <array>
#include <cstring>

#include "gc3/base/random.h"

namespace gc3::core {

Result<Nonce> Handshake::new_nonce() {
  Nonce nonce{};
  std::array<std::uint64_t, sizeof nonce / sizeof(std::uint64_t)> words{};
  GC3_CHECK(draw_random(words));
  std::memcpy(nonce.data(), words.data(), sizeof nonce);
  return nonce;
}

Handshake::Handshake(std::string_view secret, std::string_view job, const Nonce& host, const Nonce& guest)
    : key_(hmac_sha256(secret, "gc3 handshake 1:" + std::string(job))), host_(host), guest_(guest) {}

Digest Handshake::proof(Role role, std::string_view text) const {
  std::string all(1, static_cast<char>(role));
  all += as_text(host_);
  all += as_text(guest_);
  all += text;
  return hmac_sha256(as_text(key_), all);
}

}  // namespace gc3::core
