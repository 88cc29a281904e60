// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), to prove that two processes know the same secret.
//
// Own code, since not every machine has a library for it, and only these two functions are needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gc3 {

using Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  void update(std::string_view data);
  // The digest of all data given so far. The object must not be used afterwards.
  Digest finish();

 private:
  void take(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> pending_{};
  std::uint64_t bytes_ = 0;
};

Digest sha256(std::string_view data);
Digest hmac_sha256(std::string_view key, std::string_view data);

// Whether two digests are equal, in a time that does not depend on where they differ.
bool same(const Digest& a, const Digest& b);
std::string hex(const Digest& digest);
inline std::string_view as_text(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace gc3
