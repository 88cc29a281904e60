#include "gc3/runtime/core/sharing/single_copy.h"

#include <doctest/doctest.h>

namespace gc3::core {
namespace {

// The results on a machine with these times in nanoseconds for a message of `n` bytes.
template <class Put, class Read>
SingleCopy machine(const Put& put, const Read& read) {
  SingleCopy found;
  found.reads = found.writes = true;
  found.source = SingleCopy::Source::measured;
  for (std::size_t i = 0; i < kCopySizes.size(); ++i) {
    const auto n = static_cast<double>(kCopySizes[i]);
    const auto shared = static_cast<std::uint32_t>(put(n));
    found.times[i] = {shared, shared, static_cast<std::uint32_t>(read(n))};
  }
  return found;
}

constexpr double kCheckNs = 25;
double copy(double n) { return n / 16; }

TEST_CASE("waits spin for the same time, whatever a check of the processor takes") {
  SingleCopy found;
  found.choose(true, 50);
  CHECK(found.thresholds.spins == 4000);
  found.choose(true, 0);
  CHECK(found.thresholds.spins == 40'000);
  found.choose(true, 1e9);
  CHECK(found.thresholds.spins == 500);
}

TEST_CASE("the slots of messages that are copied fit the caches of a core, or what most cores have") {
  SingleCopy found;
  found.choose(true, kCheckNs);
  CHECK(found.thresholds.copied_slot >= 64 << 10);
  CHECK(found.thresholds.copied_slot <= 1 << 20);
}

TEST_CASE("reading is never used if it is slower at every size") {
  SingleCopy found = machine(copy, [](double n) { return 1000 + 3 * copy(n); });
  found.choose(true, kCheckNs);
  CHECK(found.thresholds.moved == Thresholds::kNever);
  CHECK(found.thresholds.combined == Thresholds::kNever);
  CHECK(found.thresholds.halved == Thresholds::kNever);
  CHECK(found.describe().starts_with("messages are copied through shared memory; waits spin 8000 times; measured"));
}

TEST_CASE("reading at the speed of a copy is used from the size at which it costs less than the copy that it saves") {
  SingleCopy found = machine(copy, [](double n) { return 1000 + copy(n); });
  found.choose(true, kCheckNs);
  CHECK(found.thresholds.moved == 32 << 10);
  CHECK(found.thresholds.combined == Thresholds::kNever);  // it saves one copy, and costs one
  CHECK(found.thresholds.halved == 32 << 10);
  CHECK(
      found.describe().starts_with("messages are read from the sender's memory from 32 KiB if they are copied, "
                                   "from 32 KiB by sender and receiver together; waits spin 8000 times; measured"));
}

TEST_CASE("reading that is faster than a copy is used at all sizes; with fewer cores than ranks only for larger ones") {
  for (const bool core_each : {true, false}) {
    SingleCopy found = machine(copy, [](double n) { return copy(n) / 2; });
    found.choose(core_each, kCheckNs);
    CHECK(found.thresholds.moved == (core_each ? 8 << 10 : 32 << 10));
    CHECK(found.thresholds.combined == found.thresholds.moved);
    CHECK(found.thresholds.halved == 32 << 10);
  }
}

TEST_CASE("reading is used from a size on only if it is as fast at all larger sizes") {
  SingleCopy found = machine(copy, [](double n) { return n > 100'000 && n < 200'000 ? 1e6 : 1.0; });
  found.choose(true, kCheckNs);
  CHECK(found.thresholds.moved == 512 << 10);
}

TEST_CASE("a message of many slots costs as much as its slots, even if a copy of all of it is slow") {
  // Of a megabyte: copies of 100 us each, but 2 x 25 in two halves; read in 120 us.
  SingleCopy found =
      machine([](double n) { return n < 1'000'000 ? n / 20 : 100'000; }, [](double n) { return n / 8.7; });
  found.choose(true, kCheckNs);
  REQUIRE(found.thresholds.copied_slot <= 1 << 20);
  const bool fits = found.thresholds.copied_slot == 1 << 20;  // the cache of this machine's cores is so large
  CHECK(found.thresholds.moved == (fits ? 1 << 20 : Thresholds::kNever));
  CHECK(found.thresholds.halved == (fits ? 1 << 20 : Thresholds::kNever));
}

TEST_CASE("without a measurement, the description says so") {
  SingleCopy found;
  found.reads = found.writes = true;
  found.choose(false, kCheckNs);
  CHECK(found.thresholds.moved == 32 << 10);
  CHECK(found.describe().ends_with("not measured"));
  CHECK(SingleCopy{}.describe().starts_with("messages are copied through shared memory; "));
}

}  // namespace
}  // namespace gc3::core
