// A plan: an ir::Program decoded for the interpreter. It does not depend on buffers, sizes or memory; engines add
// these.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/program.h"
#include "gc3/runtime/interp/layout.h"

namespace gc3::interp {

// A connection (sender, receiver, channel) and the threadblocks at its ends, as indices into Plan::threadblocks.
struct Connection {
  std::uint32_t sender_tb = 0;
  std::uint32_t receiver_tb = 0;
};

struct PlanThreadblock {
  std::uint32_t rank = 0;
  std::uint32_t tb = 0;  // within the rank
  std::uint32_t first_step = 0;
  std::uint32_t step_count = 0;
  std::uint32_t first_wait = 0;  // of its steps
  std::uint32_t wait_count = 0;
  std::uint32_t send_connection = kNone;
  std::uint32_t recv_connection = kNone;
  std::uint32_t send_peer = ir::kNoRank;
  std::uint32_t recv_peer = ir::kNoRank;
  std::uint32_t channel = 0;
};

struct PlanRank {
  std::uint32_t first_tb = 0;
  std::uint32_t tb_count = 0;
  std::uint32_t scratch_chunks = 0;
  std::uint32_t input_blocks = 0;
  std::uint32_t output_blocks = 0;
  bool input_aliased = false;     // in place, the input lies within the output, and no step names it
  bool output_aliased = false;    // in place, the output lies within the input, and no step names it
  std::uint32_t alias_block = 0;  // where the aliased buffer begins in the other one
  // In place, some step writes to the input outside the output that lies within it. Only the output may be written in
  // the caller's memory, so the rank works on a copy of its input.
  bool copies_input = false;
};

// How a call divides its buffers, for slots that hold `slot_data` bytes of data.
struct Tiling {
  std::uint64_t chunk_elems = 0;
  std::uint64_t tile_elems = 0;
  std::uint64_t tiles = 0;
};

// How a run uses a copy of a rank's buffer: because chunks are padded, or because a step writes to the buffer outside
// the caller's output.
struct Copied {
  std::uint32_t blocks = 0;   // 0: the run uses the buffer itself
  std::uint32_t first = 0;    // the block of the copy that is the first one of the output
  std::uint32_t results = 0;  // blocks that are copied to the output
};

struct Copy {
  const std::uint8_t* user = nullptr;
  std::uint8_t* data = nullptr;
  std::uint8_t* output = nullptr;  // of the caller
  Copied how;
};

struct Plan {
  model::Collective collective;
  model::Protocol protocol = model::Protocol::Simple;  // the format of messages: Simple, LL or LL128
  bool pulls = false;                                  // whether receivers read messages where the sender has them
  bool copied = false;                                 // whether copy engines move messages, where an engine uses them
  std::uint32_t slots = 1;                             // the slots that the program needs per connection
  std::uint32_t max_count = 1;                         // chunks in the largest transfer
  bool moves_between_classes = false;                  // see chunk_classes.h
  std::vector<PlanRank> ranks;
  std::vector<PlanThreadblock> threadblocks;
  std::vector<Connection> connections;
  std::vector<Step> steps;
  std::vector<Wait> waits;
  std::uint32_t only = ir::kNoRank;  // the rank whose steps these are; kNoRank: of all, and all threadblocks have steps
  ir::Source source;                 // of `steps`
  ir::Compute compute;               // a step of opcode `apply` has the number of its application as src.chunk

  // Refuses programs that cannot be executed safely, see ir/connections.h. Only `verify` checks the
  // results of a program.
  static Result<Plan> create(const ir::Program& program);
  // The same of a program whose chunks differ in length and that may compute, for an engine that can run it: by
  // VLayout. `create` refuses it.
  static Result<Plan> create_computing(const ir::Program& program);
  // Of a rank that makes its own steps alone. The threadblocks of the others have the connections that theirs have.
  static Result<Plan> create(const ir::ClassProgram& program, std::uint32_t rank);

  // Whether blocks of `count` elements are copied to buffers in which all chunks have the same length, because the
  // program moves data between chunk positions of different length.
  bool pads(std::uint64_t count) const { return moves_between_classes && count % collective.chunks() != 0; }
  // The copies of the input and of the output of a rank. `scales`: the call multiplies inputs, for which a rank needs a
  // copy unless the input lies within the output. `also`: buffers that are copied in any case.
  std::array<Copied, 2> copies(std::uint32_t rank, std::uint64_t count, bool scales,
                               std::array<bool, 2> also = {}) const;
  // Whether all chunks have the full length in all buffers, including padded ones.
  bool regular(std::uint64_t count) const { return moves_between_classes || count % collective.chunks() == 0; }
  // The task of a threadblock at its first step. The engine adds the ends of its connections. `regions`, `semaphores`:
  // of its rank. `steps_at`, `waits_at`: copies of `steps` and `waits`, where a device has them.
  Task task(std::uint32_t threadblock, const Region* regions, Counter* semaphores) const {
    return task(threadblock, regions, semaphores, steps.data(), waits.data());
  }
  Task task(std::uint32_t threadblock, const Region* regions, Counter* semaphores, const Step* steps_at,
            const Wait* waits_at) const;
  Tiling tiling(std::uint64_t count, std::uint64_t elem_bytes, std::uint64_t slot_data) const;
  // "rank 1 threadblock 0 step 3 (rrc, ring.py:12)".
  std::string place(std::uint32_t threadblock, std::uint32_t step) const;
};

}  // namespace gc3::interp
