#include "gc3/compiler/passes/lanes.h"

#include <doctest/doctest.h>

namespace gc3::compiler {
namespace {

TEST_CASE("lanes: lane 0 keeps its channels, and the used channels of other lanes follow without a gap") {
  const std::vector<LanePair> pairs = {{1, 0}, {0, 0}, {2, 1}, {0, 4}, {1, 3}, {2, 0}};
  const auto number = number_lanes(pairs, {true, true, true, true, false, true});
  CHECK(number[1] == 0);
  CHECK(number[3] == 4);
  CHECK(number[0] == 5);  // lane 1
  CHECK(number[5] == 6);  // lane 2, base channel 0
  CHECK(number[2] == 7);  // and 1
}

TEST_CASE("lanes: without lane 0 the numbers begin at 0") {
  CHECK(number_lanes({{1, 7}, {2, 7}}, {true, true}) == std::vector<std::uint32_t>{0, 1});
}

}  // namespace
}  // namespace gc3::compiler
