// The FIFOs through which copy engines send messages. They lie in the arenas, beside the FIFOs of the kernels, which
// the same program uses where copy engines cannot be used.
//
// A connection has slots in the receiver's arena. Beside each slot are the number of the message in it, the tag of its
// call, and whether it is spoilt. The sender's arena has a word with the number of messages that were taken out.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/interp/fifo_geometry.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cuda {

struct CopyFifos {
  // The words of a rank: one of its own, the counters of its connections, and for each of its slots the tag of the
  // message in it and then whether it is spoilt.
  struct Words {
    std::uint64_t at = 0;  // in the arena
    std::uint32_t counters = 0;
    std::uint32_t slots = 0;
    std::uint64_t bytes() const { return sizeof(std::uint64_t) * (1 + counters + 2 * std::uint64_t{slots}); }
  };
  // The words of a connection are numbered as above.
  struct Connection {
    std::uint32_t taken = 0;     // of the sender
    std::uint32_t arrivals = 0;  // of the receiver, as the rest: the first of its slots' words
    std::uint32_t tags = 0;
    std::uint32_t spoilt = 0;
    std::uint64_t slots = 0;  // in the arena
  };

  // Places them behind `bytes`, the bytes of each rank's arena so far.
  static Result<CopyFifos> create(const interp::Plan& plan, std::uint32_t slots, std::uint64_t slot_bytes,
                                  std::vector<std::uint64_t>& bytes);

  interp::FifoGeometry geometry;
  std::vector<Words> ranks;
  std::vector<Connection> connections;
};

}  // namespace gc3::cuda
