#include "gc3/runtime/core/handshake.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

namespace gc3::core {

Result<Nonce> Handshake::new_nonce() {
  Nonce nonce{};
  ssize_t got = -1;
  do {
    got = getrandom(nonce.data(), nonce.size(), 0);  // so few bytes come at once or not at all
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(nonce.size())) {
    return Diagnostic(ErrorCode::SystemRefused, std::string("getrandom: ") + std::strerror(errno));
  }
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
