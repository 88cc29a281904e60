// A builder of programs for the tests that adds the dependencies.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "gc3/ir/program.h"

namespace gc3::verify::test {

using model::Buffer;
using model::Place;

inline constexpr std::uint32_t kNobody = ir::kNoRank;

inline Place in(std::uint32_t i) { return {Buffer::input, i}; }
inline Place out(std::uint32_t i) { return {Buffer::output, i}; }
inline Place sc(std::uint32_t i) { return {Buffer::scratch, i}; }

// Takes instructions in an order in which they could run one after the other, and makes every access wait for earlier
// conflicting accesses of other threadblocks.
class Weaver {
 public:
  Weaver(std::string name, model::Collective collective);

  void scratch(std::uint32_t rank, std::uint32_t chunks);
  // The threadblock with these connections; `lane` distinguishes threadblocks without connections.
  std::uint32_t tb(std::uint32_t rank, std::uint32_t send_peer, std::uint32_t recv_peer, std::uint32_t channel = 0,
                   std::uint32_t lane = 0);

  // Places may be named as in the algorithm: in place, the builder resolves aliases and leaves out copies of a place
  // onto itself.
  void copy(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count = 1);
  void reduce(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count = 1);
  void send(std::uint32_t rank, std::uint32_t tb, Place src, std::uint32_t count = 1);
  void recv(std::uint32_t rank, std::uint32_t tb, Place dst, std::uint32_t count = 1);
  void rcs(std::uint32_t rank, std::uint32_t tb, Place dst, std::uint32_t count = 1);
  void rrc(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count = 1);
  void rrs(std::uint32_t rank, std::uint32_t tb, Place src, std::uint32_t count = 1);
  void rrcs(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count = 1);

  // Without: the following instructions wait for nothing.
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

}  // namespace gc3::verify::test
