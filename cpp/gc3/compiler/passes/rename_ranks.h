// The same program for ranks in another order, such as ranks that are not placed in blocks on their hosts.
#pragma once

#include <cstdint>
#include <span>

#include "gc3/base/result.h"
#include "gc3/compiler/trace.h"

namespace gc3::compiler {

// order[p]: the rank that does what the trace has for rank p; empty: the trace as it is. Blocks that belong to a rank
// are renamed like the rank, so the result is a program of the same collective, with the root renamed too. Chunks that
// lie apart after that are still one message: they are collected in scratch before it, or put into place after it.
// An error if `order` is not a permutation of the ranks, or if the collective is not model::is_symmetric.
Result<Trace> rename_ranks(const Trace& trace, std::span<const std::uint32_t> order);

}  // namespace gc3::compiler
