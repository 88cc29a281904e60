#include "gc3/runtime/cpu/average.h"

#include <algorithm>

#include "gc3/runtime/interp/divisors.h"

namespace gc3::cpu {

Average::Average(const interp::Plan& plan) : chunks_(plan.collective.chunks()), divisors_(interp::divisors(plan)) {}

void Average::apply(std::uint32_t rank, const Call& call, Divide divide) const {
  const std::size_t elem = model::size_of(call.type);
  const std::size_t length = (call.count + chunks_ - 1) / chunks_;
  auto* out = static_cast<std::uint8_t*>(call.outputs[rank]);
  const std::vector<std::uint64_t>& divisors = divisors_[rank];
  for (std::size_t c = 0; c < divisors.size(); ++c) {
    if (divisors[c] <= 1) continue;
    const std::size_t first = std::min(call.count, c % chunks_ * length);
    const std::size_t last = std::min(call.count, first + length);
    divide(out + (c / chunks_ * call.count + first) * elem, (last - first) * elem, divisors[c]);
  }
}

}  // namespace gc3::cpu
