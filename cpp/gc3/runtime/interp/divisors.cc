#include "gc3/runtime/interp/divisors.h"

#include <algorithm>

#include "gc3/runtime/interp/small_float.h"

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

std::optional<model::Factor> average_factor(model::DataType type, std::uint32_t ranks) {
  using model::DataType;
  const double exact = 1.0 / ranks;
  const auto single = static_cast<float>(exact);
  const auto of = [type](auto element) { return model::Factor::of(&element, type); };
  switch (type) {
    case DataType::float64:
      return of(exact);
    case DataType::float32:
      return of(single);
    case DataType::float16:
      return of(static_cast<std::uint16_t>(Half::narrow(single)));
    case DataType::bfloat16:
      return of(static_cast<std::uint16_t>(BHalf::narrow(single)));
    case DataType::float8_e4m3fn: {
      const auto narrow = static_cast<std::uint8_t>(E4M3::narrow(single));
      if (narrow == 0) return std::nullopt;  // from 1,024 ranks on
      return of(narrow);
    }
    case DataType::float8_e5m2:
      return of(static_cast<std::uint8_t>(E5M2::narrow(single)));
    default:
      return std::nullopt;
  }
}

}  // namespace gc3::interp
