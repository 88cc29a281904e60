#include "gc3/runtime/cpu/call.h"

#include <string>

#include "gc3/runtime/cpu/arena.h"

namespace gc3::cpu {
namespace {

Diagnostic bad_buffer(std::size_t rank, const std::string& what) {
  return Diagnostic(ErrorCode::BadBuffer, "rank " + std::to_string(rank) + ": " + what);
}

}  // namespace

Status check_call(const interp::Plan& plan, const Call& call) {
  const std::size_t ranks = plan.ranks.size();
  if (call.inputs.size() != ranks || call.outputs.size() != ranks) {
    return Diagnostic(ErrorCode::BadBuffer, std::to_string(call.inputs.size()) + " inputs and " +
                                                std::to_string(call.outputs.size()) + " outputs for " +
                                                std::to_string(ranks) + " ranks");
  }
  GC3_ASSIGN(const std::size_t block, checked_bytes(call.count, model::size_of(call.type), "a block"));
  if (block == 0) return {};
  for (std::size_t r = 0; r < ranks; ++r) {
    const interp::PlanRank& rank = plan.ranks[r];
    GC3_CHECK(checked_bytes(block, rank.input_blocks, "an input"));
    GC3_CHECK(checked_bytes(block, rank.output_blocks, "an output"));
    const auto* in = static_cast<const char*>(call.inputs[r]);
    const auto* out = static_cast<const char*>(call.outputs[r]);
    if (rank.input_blocks != 0 && in == nullptr) return bad_buffer(r, "there is no input");
    if (rank.output_blocks != 0 && out == nullptr) return bad_buffer(r, "there is no output");
    const std::size_t offset = block * rank.alias_block;
    if (rank.input_aliased && rank.input_blocks != 0 && in != out + offset) {
      return bad_buffer(r, "in place, the input is the output from byte " + std::to_string(offset) + " on");
    }
    if (rank.output_aliased && rank.output_blocks != 0 && out != in + offset) {
      return bad_buffer(r, "in place, the output is the input from byte " + std::to_string(offset) + " on");
    }
  }
  return {};
}

}  // namespace gc3::cpu
