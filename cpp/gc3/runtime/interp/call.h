// One call of a collective: the buffers of the ranks, and the type and number of their elements.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "gc3/base/result.h"
#include "gc3/model/types.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::interp {

struct Call {
  std::span<const void* const> inputs;  // per rank; null if the rank has no such buffer
  std::span<void* const> outputs;       // in place, input and output overlap by the collective's rule
  std::size_t count = 0;                // elements per block, see model/collective.h
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
  std::span<const model::Factor> factors = {};  // per rank; of premulsum

  bool scales() const { return op == model::ReduceOp::premulsum; }
};

// Whether the operation takes the type.
Status check_op(model::DataType type, model::ReduceOp op);
// Checks that the operation takes the type, that all buffers of the collective are given, and that those of an in-place
// collective overlap as they must.
Status check_call(const Plan& plan, const Call& call);
// The same for the buffers of one rank.
Status check_rank(const Plan& plan, const Call& call, std::uint32_t rank);

}  // namespace gc3::interp
