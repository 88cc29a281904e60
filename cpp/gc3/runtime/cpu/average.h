// The last step of avg: divides every finished output element by the number of inputs in its sum.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/runtime/cpu/kernels.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cpu {

using interp::Call;

class Average {
 public:
  explicit Average(const interp::Plan& plan);

  void apply(std::uint32_t rank, const Call& call, Divide divide) const;

 private:
  std::uint32_t chunks_;                              // per block
  std::vector<std::vector<std::uint64_t>> divisors_;  // per rank and output chunk
};

}  // namespace gc3::cpu
