// The common algorithms as programs for the tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "gc3/ir/program.h"
#include "gc3/verify/test_weaver.h"

namespace gc3::verify::test {

model::Collective collective(model::CollectiveKind kind, std::uint32_t ranks, std::uint32_t chunks, bool in_place,
                             std::uint32_t root = 0);

// Fused: one threadblock per channel with rrs, rrcs and rcs. Otherwise: one threadblock sends and one receives.
ir::Program ring_allreduce(std::uint32_t ranks, std::uint32_t channels, bool in_place, bool fused);
// Every rank reduces `chunks` of the ranks x chunks chunks, in messages of `together` chunks.
ir::Program allpairs_allreduce(std::uint32_t ranks, std::uint32_t chunks, bool in_place, std::uint32_t together);
ir::Program direct_alltoall(std::uint32_t ranks, std::uint32_t chunks, bool in_place);
ir::Program two_step_alltoall(std::uint32_t nodes, std::uint32_t gpus);
// Along the ranks in order, with `chunks` chunks distributed over the channels.
ir::Program chain_broadcast(std::uint32_t ranks, std::uint32_t chunks, std::uint32_t channels, bool in_place);
ir::Program chain_reduce(std::uint32_t ranks, std::uint32_t chunks, std::uint32_t channels, bool in_place);
// Three ranks or more, in place. Only messages through other ranks ensure that a rank overwrites a chunk after it has
// sent it.
ir::Program round_trip_allreduce(std::uint32_t ranks, std::uint32_t chunks);
// Two ranks that send everything before they receive anything: needs a slot per chunk.
ir::Program burst_alltoall(std::uint32_t chunks);
// Two chunks go from rank 0 to rank 1 and straight back. Stored at their origin, each is read before it is overwritten.
// Stored `shift` chunks further, the first to return may overwrite the second before it is read, unless the receive
// waits.
ir::Program there_and_back(std::uint32_t shift, bool waits);
// Random moves between random ranks, for a custom collective with the result as its postcondition.
ir::Program random_program(std::mt19937_64& random);

// Small instances of all of these, with the slots they need.
std::vector<ir::Program> small_programs();

}  // namespace gc3::verify::test
