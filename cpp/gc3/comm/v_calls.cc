// Which program serves a call of a v-form, once its counts and buffers have been checked.
#include <algorithm>
#include <mutex>
#include <string>

#include "gc3/base/errors/model.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/comm/communicator.h"
#include "gc3/runtime/interp/call.h"

namespace gc3::comm {

using model::Collective;
using select::CallShape;

Result<Collective> Communicator::v_collective(CollectiveKind kind, std::uint32_t root) const {
  GC3_CHECK(signature(kind, root));
  GC3_ASSIGN(Collective collective, Collective::builtin(kind, size(), 1, root, false));
  if (collective.v_counts() != 0) return collective;
  return Diagnostic(ErrorCode::NoVForm, std::string(name_of(kind)) + " has no v-form");
}

Result<Communicator::Found> Communicator::find(const VCall& call) {
  {
    std::unique_lock<std::mutex> lock;
    GC3_CHECK(lock_.take(lock));
    for (const Checked& known : checked_) {
      if (known.found.program != nullptr && known.call.is_like(call)) return known.found;
    }
  }
  GC3_ASSIGN(const Collective collective, v_collective(call.kind, call.root));
  GC3_CHECK(check_counts(collective, call.type, call.counts));
  GC3_ASSIGN(const bool is_in_place, in_place(collective, rank(), call));
  GC3_ASSIGN(const Found found, find(collective, call, is_in_place));
  std::unique_lock<std::mutex> lock;
  GC3_CHECK(lock_.take(lock));
  Checked& oldest = checked_[next_checked_++ % checked_.size()];
  oldest.call = call;
  oldest.found = found;
  return found;
}

// The size of a call: what its largest buffer would have if all blocks were equally long.
Result<CallShape> Communicator::v_shape(CollectiveKind kind, std::span<const std::uint64_t> counts,
                                        model::DataType type, bool in_place, std::uint32_t root) const {
  GC3_ASSIGN(const Signature* const asks, signature(kind, root));
  std::uint64_t all = 0;
  for (const std::uint64_t count : counts) all += count;
  const std::uint64_t copies = std::max<std::uint64_t>(counts.size() / asks->largest_blocks, 1);  // of that buffer
  const std::uint64_t bytes = (all + copies - 1) / copies * model::size_of(type);
  return here({.kind = kind, .size = bytes, .in_place = in_place, .root = root, .skew = CallShape::skew_of(counts)});
}

Status Communicator::check_v(CollectiveKind kind, const std::vector<std::uint64_t>& counts, model::DataType type,
                             std::uint32_t root) const {
  GC3_ASSIGN(const Collective collective, v_collective(kind, root));
  return check_counts(collective, type, counts);
}

Result<Communicator::Found> Communicator::find(const Collective& collective, const VCall& call, bool in_place) {
  GC3_CHECK(check_counts(collective, call.type, call.counts));
  GC3_CHECK(interp::check_op(call.type, call.op));
  if (call.op == model::ReduceOp::premulsum) {
    return Diagnostic(ErrorCode::BadReduceOp,
                      "premulsum of blocks of given lengths or in lists: multiply the input before the call");
  }
  GC3_ASSIGN(const CallShape key, v_shape(call.kind, call.counts, call.type, in_place, call.root));
  return find(key, true);
}

}  // namespace gc3::comm
