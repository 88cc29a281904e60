// The results of the scheduling passes: channels, threadblocks, order (002 section 5.2). Each pass has a header in
// passes/.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/compiler/instruction_dag.h"

namespace gc3::compiler {

// (sender, receiver, channel): a FIFO, used by one threadblock at each end.
struct Connection {
  std::uint32_t sender;
  std::uint32_t receiver;
  std::uint32_t channel;
  std::uint32_t feeds = kNone;   // the connection that fused instructions forward its data to
  std::uint32_t fed_by = kNone;  // the connection from which fused instructions forward data here
};

struct Channels {
  std::vector<Connection> connections;
  std::vector<std::uint32_t> connection_of;  // per operation; kNone if local
  std::vector<Fusion> fusions;               // the fusions whose hops got one channel
};

struct Block {
  std::uint32_t rank;
  std::uint32_t send_connection = kNone;
  std::uint32_t recv_connection = kNone;
  std::uint32_t channel = 0;
};

struct Threadblocks {
  std::vector<Block> blocks;                 // by rank, then channel and peers (or the user's own numbers)
  std::vector<std::uint32_t> first_of_rank;  // ranks + 1 entries
  std::vector<std::uint32_t> block_of;  // per node; kNone: a local instruction, which any block of its rank may run

  std::uint32_t count(std::uint32_t rank) const { return first_of_rank[rank + 1] - first_of_rank[rank]; }
};

struct Order {
  std::vector<std::uint32_t> nodes;     // all of them, in an order that respects every edge
  std::vector<std::uint32_t> block_of;  // per node, local instructions included
  std::vector<std::uint32_t> stuck;     // not empty: no complete order, because of these fused nodes (receives)
  bool complete = false;
};

}  // namespace gc3::compiler
