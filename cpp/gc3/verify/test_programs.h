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

// Fused: one threadblock per channel with rrs, rrcs and rcs. Otherwise: one sends and one receives.
ir::Program ring_allreduce(std::uint32_t ranks, std::uint32_t channels, bool in_place, bool fused);
// Every rank reduces `chunks` of the ranks x chunks chunks, which travel `together` at a time.
ir::Program allpairs_allreduce(std::uint32_t ranks, std::uint32_t chunks, bool in_place, std::uint32_t together);
ir::Program direct_alltoall(std::uint32_t ranks, std::uint32_t chunks, bool in_place);
ir::Program two_step_alltoall(std::uint32_t nodes, std::uint32_t gpus);
// Along the ranks in order, `chunks` chunks spread over the channels.
ir::Program chain_broadcast(std::uint32_t ranks, std::uint32_t chunks, std::uint32_t channels, bool in_place);
ir::Program chain_reduce(std::uint32_t ranks, std::uint32_t chunks, std::uint32_t channels, bool in_place);
// Three ranks or more, in place: that a rank overwrites a chunk only after it has sent it is ordered through the other
// ranks alone.
ir::Program round_trip_allreduce(std::uint32_t ranks, std::uint32_t chunks);
// Two ranks that send everything before they receive anything: needs a slot per chunk.
ir::Program burst_alltoall(std::uint32_t chunks);
// Two chunks go from rank 0 to rank 1 and come straight back. Stored where they came from, each is read before it is
// overwritten; `shift` chunks further on, the first to return may overwrite the second before that is read, unless the
// receive waits.
ir::Program there_and_back(std::uint32_t shift, bool waits);
// Random moves between random ranks, for a custom collective that asks for what they compute.
ir::Program random_program(std::mt19937_64& random);

// Small instances of all of these, with as many slots as they need.
std::vector<ir::Program> small_programs();

}  // namespace gc3::verify::test
