// How a warp packs vectors into lines, with a model of a warp on the host: 32 lanes in lock step.
#include "gc3/runtime/cuda/device/lines.h"

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <vector>

#include "gc3/runtime/cuda/device/device_block.h"
#include "gc3/runtime/cuda/device/test_platform.h"

namespace gc3::cuda {
namespace {

struct Any {
  std::uint32_t vecs;
  bool operator()(std::uint32_t v) const { return v < vecs; }
};

template <class L>
using Vecs = HostPlatform::PerLane<Vec>[L::kVecs];

// Every vector of a trip is moved by one lane, once.
template <class L>
void check_vectors() {
  std::multiset<std::uint32_t> seen;
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    for (std::uint32_t k = 0; k < L::kVecs; ++k) {
      if (L::brings(k, lane)) seen.insert(L::vector(5 * L::kTrip, k, lane));
    }
  }
  REQUIRE(seen.size() == L::kTrip);
  std::uint32_t next = 5 * L::kTrip;
  for (const std::uint32_t v : seen) CHECK(v == next++);
}

// `trips` trips through a slot, back and forth.
template <class L>
std::vector<std::uint64_t> check_round_trip(std::uint64_t flag, std::uint32_t vecs) {
  const std::uint32_t trips = (vecs + L::kTrip - 1) / L::kTrip;
  std::vector<std::uint64_t> slot(trips * L::kTripBytes / 8);
  HostBlock block(1);
  HostPlatform platform(block, 0);
  Control control;
  Launch launch{};
  launch.control = &control;
  launch.timeout_ns = 1000000000;
  const auto word = [](std::uint32_t v, int half) {
    return 0x1111111100000000U * (v % 7 + 1) + 2 * v + unsigned(half);
  };
  const Any any{vecs};
  for (std::uint32_t base = 0; base < vecs; base += L::kTrip) {
    Vecs<L> in{};
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      for (std::uint32_t k = 0; k < L::kVecs; ++k) {
        const std::uint32_t v = L::vector(base, k, lane);
        if (L::brings(k, lane) && v < vecs) in[k][lane] = {word(v, 0), word(v, 1)};
      }
    }
    L::put(platform, Out{reinterpret_cast<std::uint8_t*>(slot.data()), flag}, base, any, in);
  }
  for (std::uint32_t base = 0; base < vecs; base += L::kTrip) {
    Vecs<L> out{};
    REQUIRE(L::get(platform, launch, In{reinterpret_cast<const std::uint8_t*>(slot.data()), flag}, base, any, out));
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      for (std::uint32_t k = 0; k < L::kVecs; ++k) {
        const std::uint32_t v = L::vector(base, k, lane);
        if (!L::brings(k, lane) || v >= vecs) continue;
        CHECK(out[k][lane].low == word(v, 0));
        CHECK(out[k][lane].high == word(v, 1));
      }
    }
  }
  // No line of another message is accepted, whichever single flag is wrong.
  if (L::kFlagged) {
    launch.timeout_ns = 1;
    for (std::size_t i = 0; i < slot.size(); i += 97) {
      std::vector<std::uint64_t> stale = slot;
      const std::size_t line = i / 16 * 16 + 15;
      stale[L::kTrip == 60 ? line : i] ^= std::uint64_t{1} << 40U;
      bool all = true;
      for (std::uint32_t base = 0; base < vecs; base += L::kTrip) {
        Vecs<L> out{};
        all = L::get(platform, launch, In{reinterpret_cast<const std::uint8_t*>(stale.data()), flag}, base, any, out) &&
              all;
      }
      const bool carries = L::kTrip == 60 || i < vecs * 4;  // lines of vectors that do not exist are not read
      CHECK(all == !carries);
      control.stop = 0;
    }
  }
  return slot;
}

TEST_CASE("every vector of a trip is brought once") {
  check_vectors<Lines<interp::Simple, 4>>();
  check_vectors<Lines<interp::LL, 2>>();
  check_vectors<Lines<interp::LL128, 2>>();
}

TEST_CASE("vectors come out of the slot as they went in") {
  for (const std::uint32_t vecs : {1U, 31U, 59U, 60U, 61U, 128U, 300U}) {
    check_round_trip<Lines<interp::Simple, 4>>(0, vecs);
    check_round_trip<Lines<interp::LL, 2>>(0x12345678, vecs);
    check_round_trip<Lines<interp::LL128, 2>>(0x123456789abcdef0, vecs);
  }
}

TEST_CASE("LL128: 15 of 16 words are data, and every line ends in the flag") {
  const std::uint64_t flag = 0xfeedfacecafebeef;
  const std::vector<std::uint64_t> slot = check_round_trip<Lines<interp::LL128, 2>>(flag, 180);
  REQUIRE(slot.size() == 3 * 128);
  std::set<std::uint64_t> data;
  for (std::size_t i = 0; i < slot.size(); ++i) {
    if (i % 16 == 15) {
      CHECK(slot[i] == flag);
    } else {
      data.insert(slot[i]);
    }
  }
  CHECK(data.size() == 2 * 180);
}

// Flags of LL have 16 bits: lines of a slot that short messages do not use must not keep an old flag forever.
TEST_CASE("LL: before its flags come round, every line of a slot gets a new one") {
  HostBlock shared(1);
  HostPlatform platform(shared, 0);
  Launch launch{};
  DeviceBlock<HostPlatform, float32_element> block(platform, launch);
  interp::Run run;
  run.slots = 8;
  run.slot_bytes = 4096;
  run.slot_stride = 4096;
  std::vector<std::uint64_t> slots(8 * 512);
  interp::SendEnd end;
  end.slots = reinterpret_cast<std::uint8_t*>(slots.data());
  for (end.step = 32768 - 16; end.step < 32768 - 8;) interp::LL::post(block, run, end);
  for (const std::uint64_t word : slots) CHECK(word == 0);
  for (std::uint64_t i = 0; i < 8; ++i) interp::LL::post(block, run, end);
  REQUIRE(end.step == 32768);
  for (std::size_t i = 0; i < slots.size(); ++i) CHECK((slots[i] >> 32U) == 32768 - 8 + i / 512 + 1);
}

}  // namespace
}  // namespace gc3::cuda
