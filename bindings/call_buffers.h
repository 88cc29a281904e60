// The arrays of all ranks of a call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arrays.h"
#include "gc3/base/errors/common.h"
#include "gc3/model/collective.h"
#include "gc3/runtime/interp/call.h"

namespace gc3::bindings {

// The buffers of a call; the constructor checks that they have the sizes that the collective needs.
class CallBuffers {
 public:
  CallBuffers(const model::Collective& collective, const std::vector<std::optional<ConstBytes>>& inputs,
              const std::vector<std::optional<Bytes>>& outputs, std::size_t count, std::string_view type,
              const Operation& op)
      : call_{{}, {}, count, model::DataType::float32, model::ReduceOp::sum} {
    const Reduction reduction = parse_reduction(type, op);
    call_.type = reduction.type;
    call_.op = reduction.op;
    factors_ = reduction.factors;
    call_.factors = factors_;
    if (inputs.size() != collective.ranks() || outputs.size() != collective.ranks()) {
      throw DiagnosticError({ErrorCode::BadBuffer, std::to_string(inputs.size()) + " inputs and " +
                                                       std::to_string(outputs.size()) + " outputs for " +
                                                       std::to_string(collective.ranks()) + " ranks"});
    }
    const std::size_t block = count * model::size_of(call_.type);
    for (std::uint32_t r = 0; r < collective.ranks(); ++r) {
      check_size("input", r, inputs[r].has_value() ? inputs[r]->size() : 0, block * collective.input_blocks(r));
      check_size("output", r, outputs[r].has_value() ? outputs[r]->size() : 0, block * collective.output_blocks(r));
      inputs_.push_back(inputs[r].has_value() ? inputs[r]->data() : nullptr);
      outputs_.push_back(outputs[r].has_value() ? outputs[r]->data() : nullptr);
    }
    call_.inputs = inputs_;
    call_.outputs = outputs_;
  }

  const interp::Call& call() const { return call_; }

 private:
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<model::Factor> factors_;
  interp::Call call_;
};

}  // namespace gc3::bindings
