// The exact multiset of inputs behind chosen outputs, to explain a wrong result.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/model/terms.h"
#include "gc3/verify/connections.h"
#include "gc3/verify/index.h"
#include "gc3/verify/schedule.h"

namespace gc3::verify {

using model::Terms;  // a count saturates

struct OutputChunk {
  std::uint32_t rank;
  std::uint32_t index;
};

// One multiset per output of `wanted`; empty where nothing was written.
std::vector<Terms> rebuild_terms(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                                 const std::vector<OutputChunk>& wanted);

// "rank 0 input[1] + 2 x rank 3 input[1]"; long ones are cut.
std::string to_string(const Terms& terms);

}  // namespace gc3::verify
