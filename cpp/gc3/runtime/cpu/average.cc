#include "gc3/runtime/cpu/average.h"

#include <algorithm>

namespace gc3::cpu {
namespace {

std::uint64_t terms(const model::Collective& collective, std::uint32_t rank, std::uint32_t chunk) {
  using Kind = model::CollectiveKind;
  switch (collective.kind()) {
    case Kind::allreduce:
    case Kind::reducescatter:
    case Kind::reduce:
      return collective.ranks();
    case Kind::allgather:
    case Kind::alltoall:
    case Kind::broadcast:
    case Kind::gather:
    case Kind::scatter:
    case Kind::alltonext:
      return 1;
    case Kind::custom:
      return collective.expected_terms(rank, chunk).size();
  }
  return 1;
}

}  // namespace

Average::Average(const interp::Plan& plan) : chunks_(plan.collective.chunks()), divisors_(plan.ranks.size()) {
  for (std::uint32_t r = 0; r < plan.ranks.size(); ++r) {
    const std::uint32_t size = plan.collective.output_chunks(r);
    for (std::uint32_t c = 0; c < size; ++c) divisors_[r].push_back(terms(plan.collective, r, c));
  }
}

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
