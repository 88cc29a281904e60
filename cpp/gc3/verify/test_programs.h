// Programs for the tests: a builder that adds the dependencies, and the common algorithms made with it.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gc3/ir/program.h"

namespace gc3::verify::test {

using model::Buffer;
using model::Place;

inline constexpr std::uint32_t kNobody = ir::kNoRank;

inline Place in(std::uint32_t i) { return {Buffer::input, i}; }
inline Place out(std::uint32_t i) { return {Buffer::output, i}; }
inline Place sc(std::uint32_t i) { return {Buffer::scratch, i}; }

// Takes instructions in an order in which they could run one after the other, and makes every access wait for the
// conflicting accesses of other threadblocks before it.
class Weaver {
 public:
  Weaver(std::string name, model::Collective collective);

  void scratch(std::uint32_t rank, std::uint32_t chunks);
  // The threadblock with these connections; `lane` tells several apart that have none.
  std::uint32_t tb(std::uint32_t rank, std::uint32_t send_peer, std::uint32_t recv_peer, std::uint32_t channel = 0,
                   std::uint32_t lane = 0);

  // Places may be named as the algorithm sees them: in place, aliases are resolved here, and a copy onto itself is
  // left out.
  void copy(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count = 1);
  void reduce(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count = 1);
  void send(std::uint32_t rank, std::uint32_t tb, Place src, std::uint32_t count = 1);
  void recv(std::uint32_t rank, std::uint32_t tb, Place dst, std::uint32_t count = 1);
  void rcs(std::uint32_t rank, std::uint32_t tb, Place dst, std::uint32_t count = 1);
  void rrc(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count = 1);
  void rrs(std::uint32_t rank, std::uint32_t tb, Place src, std::uint32_t count = 1);
  void rrcs(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count = 1);

  // Without: the instructions that follow wait for nothing.
  void synchronise(bool on) { synchronise_ = on; }

  ir::Program finish(std::uint32_t slots);

 private:
  struct Access {
    std::uint32_t tb, step;
  };
  struct Slot {
    std::vector<Access> readers;  // since the last write
    std::vector<Access> writer;   // none or one
  };
  struct Emitted {
    ir::Instruction instruction;
    std::vector<ir::Dependency> dependencies;
  };
  struct Tb {
    ir::Threadblock connections;
    std::vector<Emitted> steps;
  };
  struct Rank {
    std::vector<Tb> tbs;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> by_connections;
    std::uint32_t scratch_chunks = 0;
    std::vector<Slot> slots[3];
  };
  void emit(ir::Opcode opcode, std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count);
  static void wait_for(std::uint32_t tb, std::vector<ir::Dependency>& waits, const std::vector<Access>& accesses);

  std::string name_;
  model::Collective collective_;
  std::vector<Rank> ranks_;
  bool synchronise_ = true;
};

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
// Random moves between random ranks, for a custom collective that asks for what they compute.
ir::Program random_program(std::mt19937_64& random);

// Small instances of all of these, with as many slots as they need.
std::vector<ir::Program> small_programs();

}  // namespace gc3::verify::test
