#include "gc3/compiler/passes/lanes.h"

#include <algorithm>

namespace gc3::compiler {

std::vector<std::uint32_t> number_lanes(const std::vector<LanePair>& pairs, const std::vector<bool>& used) {
  std::uint32_t first_free = 0;
  std::vector<std::uint32_t> order;
  for (std::uint32_t p = 0; p < pairs.size(); ++p) {
    if (!used[p]) continue;
    order.push_back(p);
    if (pairs[p].first == 0) first_free = std::max(first_free, pairs[p].second + 1);
  }
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return pairs[a] < pairs[b]; });
  std::vector<std::uint32_t> number(pairs.size(), 0);
  for (const std::uint32_t p : order) number[p] = pairs[p].first == 0 ? pairs[p].second : first_free++;
  return number;
}

}  // namespace gc3::compiler
