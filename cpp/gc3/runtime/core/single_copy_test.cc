#include "gc3/runtime/core/single_copy.h"

#include <doctest/doctest.h>

namespace gc3::core {
namespace {

// The results on a machine with these times in nanoseconds for a message of `n` bytes.
template <class Put, class Read>
SingleCopy machine(const Put& put, const Read& read) {
  SingleCopy found;
  found.reads = found.writes = found.measured = true;
  for (std::size_t i = 0; i < SingleCopy::kSizes.size(); ++i) {
    const auto n = static_cast<double>(SingleCopy::kSizes[i]);
    const auto shared = static_cast<std::uint32_t>(put(n));
    found.times[i] = {shared, shared, static_cast<std::uint32_t>(read(n))};
  }
  return found;
}

double copy(double n) { return n / 16; }

TEST_CASE("reading is never used if it is slower at every size") {
  SingleCopy found = machine(copy, [](double n) { return 1000 + 3 * copy(n); });
  found.choose(true);
  CHECK(found.least_moved == SingleCopy::kNever);
  CHECK(found.least_combined == SingleCopy::kNever);
  CHECK(found.least_helped == SingleCopy::kNever);
  CHECK(found.describe().starts_with("messages are copied through shared memory; measured"));
}

TEST_CASE("reading at the speed of a copy is used from the size at which it costs less than the copy that it saves") {
  SingleCopy found = machine(copy, [](double n) { return 1000 + copy(n); });
  found.choose(true);
  CHECK(found.least_moved == 32 << 10);
  CHECK(found.least_combined == SingleCopy::kNever);  // it saves one copy, and costs one
  CHECK(found.least_helped == 32 << 10);
  CHECK(
      found.describe().starts_with("messages are read from the sender's memory from 32 KiB if they are copied, "
                                   "from 32 KiB by sender and receiver together; measured"));
}

TEST_CASE("reading that is faster than a copy is used at all sizes; with fewer cores than ranks only for larger ones") {
  for (const bool core_each : {true, false}) {
    SingleCopy found = machine(copy, [](double n) { return copy(n) / 2; });
    found.choose(core_each);
    CHECK(found.least_moved == (core_each ? 8 << 10 : 32 << 10));
    CHECK(found.least_combined == found.least_moved);
    CHECK(found.least_helped == 32 << 10);
  }
}

TEST_CASE("reading is used from a size on only if it is as fast at all larger sizes") {
  SingleCopy found = machine(copy, [](double n) { return n > 100'000 && n < 200'000 ? 1e6 : 1.0; });
  found.choose(true);
  CHECK(found.least_moved == 512 << 10);
}

TEST_CASE("without a measurement, the description says so") {
  SingleCopy found;
  found.reads = found.writes = true;
  found.choose(false);
  CHECK(found.least_moved == 32 << 10);
  CHECK(found.describe().ends_with("not measured"));
  CHECK(SingleCopy{}.describe() == "messages are copied through shared memory");
}

}  // namespace
}  // namespace gc3::core
