#include "gc3/runtime/interp/divisors.h"

namespace gc3::interp {
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

std::vector<std::vector<std::uint64_t>> divisors(const Plan& plan) {
  std::vector<std::vector<std::uint64_t>> all(plan.ranks.size());
  for (std::uint32_t r = 0; r < plan.ranks.size(); ++r) {
    const std::uint32_t size = plan.collective.output_chunks(r);
    for (std::uint32_t c = 0; c < size; ++c) all[r].push_back(terms(plan.collective, r, c));
  }
  return all;
}

}  // namespace gc3::interp
