// What the scheduling passes decide: channels, threadblocks, order (002 section 5.2).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/compiler/instruction_dag.h"

namespace gc3::compiler {

inline constexpr std::uint32_t kUnset = 0xffffffffU;

// (sender, receiver, channel): a FIFO, used by one threadblock at each end.
struct Connection {
  std::uint32_t sender;
  std::uint32_t receiver;
  std::uint32_t channel;
  std::uint32_t feeds = kUnset;   // the connection that fused instructions forward its data to
  std::uint32_t fed_by = kUnset;  // the connection whose data fused instructions forward here
};

struct Channels {
  std::vector<Connection> connections;
  std::vector<std::uint32_t> connection_of;  // per operation; kUnset where local
  std::vector<Fusion> fusions;               // those whose hops got one channel
};

// Every hop of a chain of fused instructions gets the same channel: the lowest on which each threadblock on the way
// forwards from one peer to one peer. Lanes get disjoint channels. Channels given by the user are kept; a fusion that
// contradicts them is dropped.
Result<Channels> assign_channels(const Trace& trace, std::span<const Fusion> fusions);

struct Block {
  std::uint32_t rank;
  std::uint32_t send_connection = kUnset;
  std::uint32_t recv_connection = kUnset;
  std::uint32_t channel = 0;
};

struct Threadblocks {
  std::vector<Block> blocks;                 // by rank, then channel and peers (or the user's own numbers)
  std::vector<std::uint32_t> first_of_rank;  // ranks + 1 entries
  std::vector<std::uint32_t> block_of;       // per node; kUnset: a local instruction that any block of its rank may run

  std::uint32_t count(std::uint32_t rank) const { return first_of_rank[rank + 1] - first_of_rank[rank]; }
};

// Whether the user placed the operations of this trace on threadblocks.
bool is_manual(const Trace& trace);

// Whether no rank has more than `limit` threadblocks (0: any number); the error names the heaviest rank.
Status check_limit(const Threadblocks& threadblocks, std::uint32_t limit);

// One threadblock per unique (send peer, receive peer, channel). Where a rank would have more than `limit` (0: none),
// threadblocks that only send are joined with ones that only receive; more than that is an error.
Result<Threadblocks> assign_threadblocks(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                                         std::uint32_t limit);
// The same for threadblocks given by the user; chooses the channels too. Fusions must already agree with the blocks.
struct ManualSchedule {
  Channels channels;
  Threadblocks threadblocks;
};
Result<ManualSchedule> place_manually(const Trace& trace, const InstructionDag& dag, std::span<const Fusion> fusions);

struct Order {
  std::vector<std::uint32_t> nodes;     // all of them, in an order that respects every edge
  std::vector<std::uint32_t> block_of;  // per node, local instructions included
  std::vector<std::uint32_t> stuck;     // not empty: no complete order; fused nodes (by receive operation) to blame
  bool complete = false;
};

// A global topological order: lowest dependency depth first, then highest reverse depth. In it no connection ever has
// more than `slots` messages under way and messages are received in the order sent. So running it in sequence needs no
// more than `slots` FIFO slots; threadblocks run parts of one such order and cannot deadlock.
Order order_instructions(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                         const Threadblocks& threadblocks, std::uint32_t slots);
// The order in which the user wrote the operations; complete for unfused DAGs with one slot.
Order trace_order(const Trace& trace, const InstructionDag& dag, const Threadblocks& threadblocks);

std::string to_text(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                    const Threadblocks& threadblocks, const Order& order);

}  // namespace gc3::compiler
