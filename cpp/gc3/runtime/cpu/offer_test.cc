// The offer of half a copy, with this process as both sender and receiver.
#include "gc3/runtime/cpu/offer.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <numeric>
#include <vector>

namespace gc3 {
namespace {

using cpu::Offer;

struct Copy {
  Copy() { std::iota(data.begin(), data.end(), std::uint8_t{1}); }
  bool begun() const { return got != std::vector<std::uint8_t>(100); }
  std::vector<std::uint8_t> data = std::vector<std::uint8_t>(100);
  std::vector<std::uint8_t> got = std::vector<std::uint8_t>(100);
  Offer offer{};
};

TEST_CASE("a taken offer is written once, exactly to its place") {
  Copy copy;
  CHECK_FALSE(copy.offer.is_of(7));
  copy.offer.open(7, copy.got.data() + 61, 61, 30);
  CHECK(copy.offer.is_of(7));
  CHECK_FALSE(copy.offer.take(6));
  CHECK_FALSE(copy.offer.take(8));
  CHECK(copy.offer.take(7));
  CHECK_FALSE(copy.offer.take(7));
  CHECK(copy.offer.close(7) == Offer::State::taken);
  CHECK(copy.offer.write(7, getpid(), copy.data.data()));
  CHECK(copy.offer.close(7) == Offer::State::written);
  std::vector<std::uint8_t> expected(100);
  std::copy(copy.data.begin() + 61, copy.data.begin() + 91, expected.begin() + 61);
  CHECK(copy.got == expected);
}

TEST_CASE("a closed offer cannot be taken, and a part that could not be written is left to the receiver") {
  Copy copy;
  copy.offer.open(0, copy.got.data(), 0, 100);
  CHECK(copy.offer.close(0) == Offer::State::closed);
  CHECK(copy.offer.close(0) == Offer::State::closed);
  CHECK_FALSE(copy.offer.take(0));
  copy.offer.open(1, nullptr, 0, 100);
  CHECK(copy.offer.take(1));
  CHECK_FALSE(copy.offer.write(1, getpid(), copy.data.data()));
  CHECK(copy.offer.close(1) == Offer::State::refused);
  CHECK_FALSE(copy.begun());
}

TEST_CASE("a sender that wakes up after its offer was revoked writes nothing") {
  Copy copy;
  copy.offer.open(3, copy.got.data(), 0, 100);
  CHECK_FALSE(copy.offer.revoke(3));
  CHECK_FALSE(copy.offer.take(3));
  copy.offer.open(4, copy.got.data(), 0, 100);
  CHECK(copy.offer.take(4));
  CHECK(copy.offer.revoke(4));
  CHECK_FALSE(copy.offer.write(4, getpid(), copy.data.data()));
  CHECK_FALSE(copy.offer.revoke(4));
  CHECK_FALSE(copy.begun());
  CHECK_FALSE(copy.offer.revoke(5));  // there was none
}

}  // namespace
}  // namespace gc3
