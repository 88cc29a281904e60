// The verifier: proves that a program from any source implements its collective without races or deadlocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gc3/base/diagnostic.h"
#include "gc3/ir/program.h"

namespace gc3::verify {

struct Options {
  std::uint32_t slots = 0;             // FIFO slots per connection to prove freedom from deadlock for; 0: program.slots
  std::uint32_t max_threadblocks = 0;  // per rank; 0: no limit
  std::uint32_t max_channels = 0;      // 0: no limit
  std::size_t max_diagnostics = 10;    // stop after this many
  // Prove freedom from deadlock under the assumption that every message takes a FIFO slot for each of its chunks, as in
  // the runtimes that read MSCCL XML when chunks are as large as a slot. The proof also covers smaller chunks.
  bool chunk_per_slot = false;
  bool properties = true;  // whether the proof may use what is declared of compute operations
};

struct Report {
  std::vector<Diagnostic> diagnostics;  // empty: proven
  std::uint32_t slots = 0;              // the number of slots this was proven for
  std::uint64_t transfers = 0;          // messages between ranks
  bool ok() const { return diagnostics.empty(); }
};

// Linear in the size of the program, up to a small factor. Accepts any Program that `read_image` returns.
Report verify(const ir::Program& program, const Options& options = {});

}  // namespace gc3::verify
