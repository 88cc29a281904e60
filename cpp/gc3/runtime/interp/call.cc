#include "gc3/runtime/interp/call.h"

#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/model.h"
#include "gc3/runtime/interp/checked_bytes.h"

namespace gc3::interp {
namespace {

Diagnostic bad_buffer(std::size_t rank, const std::string& what) {
  return Diagnostic(ErrorCode::BadBuffer, "rank " + std::to_string(rank) + ": " + what);
}

}  // namespace

Status check_op(model::DataType type, model::ReduceOp op) {
  const model::ReduceOpInfo& does = model::info(op);
  if (does.takes(model::info(type).kind)) return {};
  std::string text(does.name);
  text += " of ";
  text += model::name_of(type);
  text += "; it takes";
  for (const model::DataTypeInfo& other : model::kDataTypes) {
    if (!does.takes(other.kind)) continue;
    text += ' ';
    text += other.name;
  }
  return Diagnostic(ErrorCode::BadReduceOp, std::move(text));
}

namespace {

// Whether the rank has the factor that premulsum needs.
Status check_factor(const Call& call, std::uint32_t rank) {
  if (!call.scales()) return {};
  const std::optional<model::DataType> type = rank < call.factors.size() ? call.factors[rank].type : std::nullopt;
  if (type == call.type) return {};
  return Diagnostic(
      ErrorCode::BadReduceOp,
      "rank " + std::to_string(rank) + ": premulsum of " + std::string(model::name_of(call.type)) +
          " needs a factor of that type; " +
          (type ? "that given is of " + std::string(model::name_of(*type)) : std::string("none is given")));
}

}  // namespace

Status check_call(const Plan& plan, const Call& call) {
  const std::size_t ranks = plan.ranks.size();
  if (call.inputs.size() != ranks || call.outputs.size() != ranks) {
    return Diagnostic(ErrorCode::BadBuffer, std::to_string(call.inputs.size()) + " inputs and " +
                                                std::to_string(call.outputs.size()) + " outputs for " +
                                                std::to_string(ranks) + " ranks");
  }
  for (std::uint32_t r = 0; r < ranks; ++r) GC3_CHECK(check_rank(plan, call, r));
  return {};
}

Status check_rank(const Plan& plan, const Call& call, std::uint32_t rank) {
  GC3_CHECK(check_op(call.type, call.op));
  GC3_CHECK(check_factor(call, rank));
  GC3_ASSIGN(const std::size_t block, checked_bytes(call.count, model::size_of(call.type), "a block"));
  if (block == 0) return {};
  const PlanRank& has = plan.ranks[rank];
  GC3_CHECK(checked_bytes(block, has.input_blocks, "an input"));
  GC3_CHECK(checked_bytes(block, has.output_blocks, "an output"));
  const auto* in = static_cast<const char*>(call.inputs[rank]);
  const auto* out = static_cast<const char*>(call.outputs[rank]);
  if (has.input_blocks != 0 && in == nullptr) return bad_buffer(rank, "there is no input");
  if (has.output_blocks != 0 && out == nullptr) return bad_buffer(rank, "there is no output");
  const std::size_t offset = block * has.alias_block;
  if (has.input_aliased && has.input_blocks != 0 && in != out + offset) {
    return bad_buffer(rank, "in place, the input must begin at byte " + std::to_string(offset) + " of the output");
  }
  if (has.output_aliased && has.output_blocks != 0 && out != in + offset) {
    return bad_buffer(rank, "in place, the output must begin at byte " + std::to_string(offset) + " of the input");
  }
  return {};
}

}  // namespace gc3::interp
