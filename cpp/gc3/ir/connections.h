// Connections (sender, receiver, channel) and their messages: the k-th send of a connection meets its k-th receive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gc3/base/findings.h"
#include "gc3/base/result.h"
#include "gc3/ir/index.h"

namespace gc3::ir {

struct Connection {
  std::uint32_t send_tb = kNone;  // the threadblock at either end, or kNone
  std::uint32_t recv_tb = kNone;
  std::uint32_t messages = 0;
  std::size_t first_chunk = 0;  // of its first message, in the array of the chunks of all messages of all connections
};

struct Connections {
  std::vector<Connection> all;
  std::vector<std::uint32_t> sending;    // per threadblock: the connection it sends on, or kNone
  std::vector<std::uint32_t> receiving;  // likewise
  std::uint64_t messages = 0;
  std::size_t chunks = 0;
};

// Pairs threadblocks, then their messages. Incomplete if there were findings.
Connections match_transfers(const ProgramIndex& index, Findings& findings);

// Refuses a program whose messages copy engines move, and which reduces.
Status check_copies(const Program& program);

// For what runs or simulates programs: the connections, or the first mistake in the structure or a connection. A
// program need not state the number of FIFO slots.
Result<Connections> checked_connections(const Program& program);

}  // namespace gc3::ir
