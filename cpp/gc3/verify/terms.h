// The exact multiset of inputs in chosen outputs, to explain a wrong result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gc3/model/terms.h"
#include "gc3/verify/program.h"
#include "gc3/verify/schedule.h"

namespace gc3::verify {

using model::Terms;

struct OutputChunk {
  std::uint32_t rank;
  std::uint32_t index;
};

// The value of an output; empty if nothing was written.
struct Held {
  std::uint32_t count = 0;     // of all terms, as in Cell
  std::optional<Terms> terms;  // none: too many to list
};

// One per output of `wanted`. Lists at most a million sums and inputs in all, because a small program can make far
// larger values. What operations make is numbered by `calls`.
std::vector<Held> rebuild_terms(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                                const std::vector<OutputChunk>& wanted, model::Calls& calls);

// "rank 0 input[1] + 2 x rank 3 input[1]"; long ones are cut.
std::string to_string(const Terms& terms, const model::Calls& calls = {});

}  // namespace gc3::verify
