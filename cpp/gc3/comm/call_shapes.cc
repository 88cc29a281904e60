// The keys of calls: what of a call, and of where its ranks are, the choice of its program depends on.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/model.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/comm/communicator.h"
#include "gc3/runtime/interp/call.h"

namespace gc3::comm {

using model::Collective;
using select::CallShape;

std::optional<Signature> signature_of(CollectiveKind kind, std::uint32_t ranks, std::uint32_t rank,
                                      std::uint32_t root) {
  const Result<Collective> made = Collective::builtin(kind, ranks, 1, root, true);
  if (!made.ok()) return std::nullopt;
  const Collective& collective = made.value();
  Signature found{collective.input_blocks(rank), collective.output_blocks(rank), 0, {}};
  for (std::uint32_t r = 0; r < ranks; ++r) {
    found.largest_blocks = std::max({found.largest_blocks, collective.input_blocks(r), collective.output_blocks(r)});
  }
  // In reduce, gather and scatter only the root would know that a call is in place, so they cannot be.
  const bool known_to_all =
      kind != CollectiveKind::reduce && kind != CollectiveKind::gather && kind != CollectiveKind::scatter;
  if (known_to_all) found.alias = collective.alias(rank);
  return found;
}

Result<std::size_t> bytes_of(std::size_t blocks, std::size_t count, model::DataType type) {
  std::size_t bytes = 0;
  if (!__builtin_mul_overflow(count, model::size_of(type) * blocks, &bytes) && bytes <= kMostBytes) return bytes;
  return Diagnostic(ErrorCode::BadBuffer, std::to_string(count) + " elements are more than fit into any memory");
}

Result<const Signature*> Communicator::signature(CollectiveKind kind, std::uint32_t root) const {
  if (root >= size()) {
    return Diagnostic(ErrorCode::RankOutOfRange,
                      "root " + std::to_string(root) + " of " + std::to_string(size()) + " ranks");
  }
  const std::optional<Signature>& found = signatures_[static_cast<std::size_t>(kind)][root == rank()];
  if (found) return &*found;
  GC3_CHECK(Collective::builtin(kind, size(), 1, root, true));
  return Diagnostic(ErrorCode::Internal, "a collective without a signature");
}

Result<CallShape> Communicator::shape(CollectiveKind kind, std::size_t count, model::DataType type, bool in_place,
                                      std::uint32_t root) const {
  GC3_ASSIGN(const Signature* const asks, signature(kind, root));
  GC3_ASSIGN(const std::size_t bytes, bytes_of(asks->largest_blocks, count, type));
  return here({.kind = kind, .size = bytes, .in_place = in_place, .root = root});
}

Result<CallShape> Communicator::shape(const Collective& custom, std::string condition, std::size_t count,
                                      model::DataType type) const {
  if (custom.ranks() != size()) return Diagnostic(ErrorCode::BadArgument, "a collective of another number of ranks");
  std::size_t largest = 1;
  for (std::uint32_t r = 0; r < size(); ++r)
    largest = std::max<std::size_t>({largest, custom.input_blocks(r), custom.output_blocks(r)});
  GC3_ASSIGN(const std::size_t size, bytes_of(largest, count, type));
  return here({.kind = custom.kind(),
               .size = size,
               .in_place = custom.in_place(),
               .name = std::string(custom.name()),
               .condition = std::move(condition)});
}

CallShape Communicator::here(CallShape call) const {
  // A new key of rows does not compile before it stands here: is it of the call, or of the place of its ranks?
  auto& [kind, ranks, bytes, in_place, root, nodes, ranks_per_node, transport, skew, order, name, condition] = call;
  ranks = size();
  nodes = static_cast<std::uint32_t>(placement().ranks_of.size());
  ranks_per_node = placement().ranks_per_node;
  order = placement().order;
  transport = core_->transport();
  return call;
}

Result<CallShape> Communicator::shape(const Call& call) const {
  GC3_ASSIGN(const Signature* const asks, signature(call.kind, call.root));
  GC3_CHECK(bytes_of(asks->largest_blocks, call.count, call.type));
  GC3_ASSIGN(const bool in_place, is_in_place(call, *asks));
  return shape(call.kind, call.count, call.type, in_place, call.root);
}

Result<bool> Communicator::is_in_place(const Call& call, const Signature& asks) const {
  const std::size_t block = call.count * model::size_of(call.type);
  const std::size_t input_bytes = block * asks.input_blocks;
  const std::size_t output_bytes = block * asks.output_blocks;
  if ((input_bytes != 0 && call.input == nullptr) || (output_bytes != 0 && call.output == nullptr)) {
    return Diagnostic(ErrorCode::BadBuffer, "a null pointer for the " +
                                                std::string(call.input == nullptr && input_bytes != 0 ? "in" : "out") +
                                                "put of rank " + std::to_string(rank()));
  }
  // The one buffer is the input of the root and the output of the others.
  if (call.kind == CollectiveKind::broadcast) return true;
  if (input_bytes == 0 || output_bytes == 0) return false;
  const auto* const input = static_cast<const std::byte*>(call.input);
  const auto* const output = static_cast<const std::byte*>(call.output);
  const std::less<> before;  // of pointers into different buffers, too
  if (!before(input, output + output_bytes) || !before(output, input + input_bytes)) return false;
  // The root works on a copy of its input.
  if (call.kind == CollectiveKind::reduce && input == output) return false;
  if (!asks.alias) {
    return Diagnostic(ErrorCode::BadBuffer,
                      "input and output overlap, and " + std::string(name_of(call.kind)) + " is never in place");
  }
  const bool input_inside = asks.alias->inner == model::Buffer::input;
  const std::size_t wanted = block * asks.alias->offset;
  if ((input_inside ? input : output) != (input_inside ? output : input) + wanted) {
    return Diagnostic(ErrorCode::BadBuffer,
                      "input and output overlap; in place, " + std::string(input_inside ? "the input" : "the output") +
                          " lies at byte " + std::to_string(wanted) + " of the " + (input_inside ? "output" : "input"));
  }
  return true;
}

}  // namespace gc3::comm
