#include "gc3/runtime/interp/divisors.h"

#include <algorithm>

namespace gc3::interp {

std::vector<std::vector<std::uint64_t>> divisors(const Plan& plan) {
  std::vector<std::vector<std::uint64_t>> all(plan.ranks.size());
  for (std::uint32_t r = 0; r < plan.ranks.size(); ++r) {
    const std::uint32_t size = plan.collective.output_chunks(r);
    for (std::uint32_t c = 0; c < size; ++c) {
      all[r].push_back(std::max<std::uint64_t>(1, plan.collective.demand(r, c).size()));  // none: any value is allowed
    }
  }
  return all;
}

}  // namespace gc3::interp
