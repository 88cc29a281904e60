#include "gc3/base/sha256.h"

#include <doctest/doctest.h>

#include <string>

namespace gc3 {
namespace {

TEST_CASE("SHA-256 of the examples of FIPS 180-4") {
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex(sha256(std::string(1'000'000, 'a'))) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 does not depend on how the text is cut around the ends of blocks") {
  for (const std::size_t size : {1U, 55U, 56U, 57U, 63U, 64U, 65U, 119U, 120U, 128U, 1000U}) {
    const std::string text(size, 'x');
    Sha256 hash;
    hash.update(text.substr(0, size / 3));
    hash.update(text.substr(size / 3));
    CHECK(hex(hash.finish()) == hex(sha256(text)));
    CHECK(hex(sha256(text)) != hex(sha256(text + "x")));
  }
}

TEST_CASE("HMAC-SHA-256 of RFC 4231") {
  CHECK(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counted;
  for (char c = 1; c <= 25; ++c) counted += c;
  CHECK(hex(hmac_sha256(counted, std::string(50, '\xcd'))) ==
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  const std::string large(131, '\xaa');
  CHECK(hex(hmac_sha256(large, "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hex(hmac_sha256(large,
                        "This is a test using a larger than block-size key and a larger than block-size data. The "
                        "key needs to be hashed before being used by the HMAC algorithm.")) ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST_CASE("digests are compared as a whole") {
  const Digest one = sha256("1");
  for (std::size_t i = 0; i < one.size(); ++i) {
    Digest other = one;
    other[i] ^= 0x80U;
    CHECK_FALSE(same(one, other));
  }
  CHECK(same(one, sha256("1")));
}

}  // namespace
}  // namespace gc3
