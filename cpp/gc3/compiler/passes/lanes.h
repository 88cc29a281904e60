// Channel numbers of parallel lanes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace gc3::compiler {

using LanePair = std::pair<std::uint32_t, std::uint32_t>;  // (lane, base channel)

// Distinct channels for the `used` ones of `pairs`. Lane 0 keeps its base channels, which the user may have given. The
// pairs of other lanes get the next numbers, in order.
std::vector<std::uint32_t> number_lanes(const std::vector<LanePair>& pairs, const std::vector<bool>& used);

}  // namespace gc3::compiler
