// The connections of a program on a machine: the threadblocks they join, and the resources that their transfers use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/sim/machine.h"

namespace gc3::sim {

// A part of a list.
struct Slice {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct Wire {
  std::uint32_t send_tb = kNone;  // index into Program::threadblocks
  std::uint32_t recv_tb = kNone;
  std::uint32_t link_class = 0;
  Slice out;  // of Wiring::resources: those that the sender's side of the route occupies
  Slice into;
  Slice back_out;  // if the receiver pulls: the way of its requests
  Slice back_into;
  std::uint32_t engine = kNone;  // the sender's copy engine, a resource; none: threadblocks move data
  std::uint64_t moved = 0;       // chunks that are sent, and only stored by the receiver
  std::uint64_t combined = 0;    // others
};

// What the switches of a machine carry once: groups of messages, by number, that leave or enter a rank by the same way.
struct Carried {
  std::uint32_t out = kNone;       // of the message that an instruction sends: the group in which it leaves its rank,
  std::uint32_t into = kNone;      // and the one in which it enters the receiver
  std::uint32_t received = kNone;  // of the message that it receives: the group in which it has entered
  ir::Switched whole;              // the program's groups of the message that it sends, whatever their ways
};

struct Wiring {
  std::vector<Wire> wires;
  std::vector<std::uint32_t> sending;    // per threadblock: the wire it sends on, or kNone
  std::vector<std::uint32_t> receiving;  // likewise
  std::vector<std::uint32_t> resources;  // of all routes; identical exits from a rank, or entries into it, share them
  std::vector<std::uint32_t> rank_of;    // per threadblock
  std::vector<std::uint32_t> numbers;    // of the ranks, if they are some of a program's
  std::vector<std::uint8_t> combined;    // per instruction: whether what it sends is reduced or sent on by its receiver
  std::vector<std::uint32_t> memory;     // per rank: the resource of its memory; none if the machine has none
  std::vector<Carried> carried;          // per instruction; empty: every message is carried by itself
  std::vector<std::uint32_t> group_size;  // messages of each group that is carried once
  std::uint32_t max_count = 1;            // chunks in the largest message
  std::uint64_t instructions = 0;
  bool pushed = true;  // by threadblocks, all messages

  std::uint32_t number(std::uint32_t rank) const { return numbers.empty() ? rank : numbers[rank]; }
};

// The threadblocks of a program that a connection joins, and the ranks that they are of.
struct Joined {
  std::uint32_t send_tb = 0;
  std::uint32_t recv_tb = 0;
  std::uint32_t src = 0;
  std::uint32_t dst = 0;
};

// Rank r of the program is rank places[r] of the machine; without places, rank r. Refuses a program that no engine
// could run (see ir/connections.h), ranks that the machine does not have, and a pair of ranks without a path.
Result<Wiring> wire(const ir::Program& program, const Machine& machine, const std::vector<std::uint32_t>& places);

// The same for a program of some ranks: those of `numbers`. The other end of a connection may be of another rank, for
// which one of them stands.
Result<Wiring> wire(const ir::Program& program, const Machine& machine, const std::vector<std::uint32_t>& places,
                    const std::vector<Joined>& joined, std::vector<std::uint32_t> numbers);

// Refuses places of a program's ranks that the machine does not have, or fewer or more of them than ranks.
Status check_places(const std::vector<std::uint32_t>& places, const std::string& name, std::size_t ranks,
                    const Machine& machine);

// "rank 1 threadblock 0 step 3 (rrc)".
std::string step_name(const ir::Program& program, const Wiring& wiring, std::uint32_t tb, std::uint32_t step);

}  // namespace gc3::sim
