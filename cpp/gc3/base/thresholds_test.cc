#include "gc3/base/thresholds.h"

#include <doctest/doctest.h>

namespace gc3 {
namespace {

TEST_CASE("thresholds are numbers within bounds, and some may be never") {
  ThresholdChanges changes;
  CHECK(changes.empty());
  CHECK(changes.set("read_moved", "8192").empty());
  CHECK(changes.set("read_halved", "never").empty());
  CHECK(changes.set("spins", "0").empty());
  CHECK(changes.set("read_moved", "4095") == "read_moved is 4095, not a number from 4096 to 1099511627776 or never");
  CHECK(changes.set("spins", "never") == "spins is never, not a number from 0 to 1000000");
  for (const char* const bad : {"", " 1", "-1", "1.5", "0x10", "9e9", "18446744073709551615", "18446744073709551616"}) {
    CHECK(!changes.set("spins", std::string_view(bad)).empty());
    CHECK(!changes.set("read_moved", std::string_view(bad)).empty());
  }
  CHECK(changes.set("read", "1").starts_with("there is no threshold 'read'; expected one of read_moved, "));

  const Thresholds all = changes.applied_to({1, 2, 3, 4, 5});
  CHECK(all == Thresholds{8192, 2, Thresholds::kNever, 4, 0});
}

}  // namespace
}  // namespace gc3
