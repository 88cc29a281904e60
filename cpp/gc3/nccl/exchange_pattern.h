// Grouped sends and receives that amount to an all-to-all.
#pragma once

#include <optional>
#include <span>

#include "gc3/nccl/call.h"
#include "gc3/nccl/member.h"

namespace gc3::nccl {

// The all-to-all, if the calls of a group send a block to every rank and receive one from every rank, all of one length
// and type, on one stream, and the blocks of all ranks follow each other in memory. A rank knows only its own calls.
std::optional<Call> as_all_to_all(std::span<const Call> calls, const Member& member);

}  // namespace gc3::nccl
