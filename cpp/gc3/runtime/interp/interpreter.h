// The interpreter: a threadblock executes its steps, for every tile, until one has to wait.
//
// Written once for a CPU and a device, over a Protocol (simple.h, ll.h, ll128.h) and a Block. Every thread of a block
// runs this code on its own copy of the Task, and a message is divided among them in pieces. On a CPU a block is one
// thread, and an unfinished wait returns to the scheduler, which calls `advance` again later. On a device a wait spins,
// and all threads of a block see it end alike. A Block provides
//   thread() threads() sync()                the threads that share the work
//   await post await_line load_word store_word get_word put_word await_flag store_flag    see fifo.h, ll.h, ll128.h
//   copy(to, from, bytes)                    of this thread's piece; copy2(to, to2, from, bytes) to two places
//   move(to, from, bytes)                    as copy; the two may overlap where a block is one thread
//   zero(to, bytes)
//   reduce(to, a, b, bytes)                  to = a op b; reduce2(to, to2, a, b, bytes); `to` may be a or b
//   kSimplePiece kLLPiece kLL128Piece        bytes a thread moves at a time, whole lines and elements (0: all of it)
//   stage_bytes<Protocol>()                  room for such a piece
// and may provide
//   stream(to, from, bytes)                  copy for a `to` that is not read soon
//   reduce_stream(to, a, b, bytes)           reduce for such a `to`
//   expect_write(at, bytes)                  called before a write to this memory
//   load_lines store_lines                   whole runs of LL lines at once, see ll.h
//   first_tile()                             instead of Run::first_tile
//   compute(run, task, step)                 executes a step of opcode `apply`; false: it has failed
//   recorder()                               records turns, waits and ends of steps, see runtime/cpu/recording.h
// A Block that moves whole messages has carry() instead of the functions for pieces, see carry_message. If its waits
// spin, kEndless is true.
#pragma once

#include <stdint.h>

#include "gc3/runtime/interp/fifo.h"
#include "gc3/runtime/interp/layout.h"
#include "gc3/runtime/interp/ll.h"
#include "gc3/runtime/interp/ll128.h"
#include "gc3/runtime/interp/operands.h"
#include "gc3/runtime/interp/simple.h"

namespace gc3::interp {

enum class Outcome : uint8_t { progressed, blocked, finished };

// The properties of an opcode, as template arguments: one function serves all opcodes.
template <bool kReceives, bool kSends, bool kReads, bool kWrites, bool kReduces>
struct Shape {
  static constexpr bool receives = kReceives;
  static constexpr bool sends = kSends;
  static constexpr bool reads = kReads;
  static constexpr bool writes = kWrites;
  static constexpr bool reduces = kReduces;
};

// Moves `bytes` valid bytes: in (received), src and dst (buffers), out (to be sent). Unused ones are null. `in` and
// `out` may be the same memory.
template <class S, class Block>
GC3_HOST_DEVICE void combine(Block& block, bool streams, const uint8_t* in, const uint8_t* src, uint8_t* dst,
                             uint8_t* out, uint64_t bytes) {
  if constexpr (S::receives && S::writes && !S::reduces && requires { block.stream(dst, in, bytes); }) {
    if (streams) {
      if constexpr (S::sends) {
        if (in != out) block.copy(out, in, bytes);
      }
      block.stream(dst, in, bytes);
      return;
    }
  }
  if constexpr (S::receives && S::reduces && !S::sends && requires { block.reduce_stream(dst, in, src, bytes); }) {
    if (streams) return block.reduce_stream(dst, in, src, bytes);
  }
  if constexpr (S::reduces) {  // the received data is the first operand; without it, dst is
    const uint8_t* first = S::receives ? in : dst;
    if constexpr (S::sends && S::writes) {
      block.reduce2(dst, out, first, src, bytes);
    } else {
      block.reduce(S::sends ? out : dst, first, src, bytes);
    }
  } else if constexpr (S::receives) {  // forwarded data that stays in its place needs no copy
    if constexpr (S::sends && S::writes) {
      if (in != out) return block.copy2(dst, out, in, bytes);
    }
    if constexpr (S::writes) {
      block.copy(dst, in, bytes);
    } else {
      if (in != out) block.copy(out, in, bytes);
    }
  } else if constexpr (S::sends && S::writes) {
    block.copy(out, src, bytes);
    block.move(dst, src, bytes);
  } else if constexpr (S::sends) {
    block.copy(out, src, bytes);
  } else {
    if constexpr (requires { block.stream(dst, src, bytes); }) {
      const bool apart = dst + bytes <= src || src + bytes <= dst;
      if (streams && apart) return block.stream(dst, src, bytes);
    }
    block.move(dst, src, bytes);
  }
}

// Applies `combine` to the part [offset, offset + bytes) of the message.
template <class S, class Block>
GC3_HOST_DEVICE void move_piece(Block& block, const Run& run, const Task& task, const Step& step,
                                const Message& message, uint64_t offset, uint64_t bytes, const uint8_t* in,
                                uint8_t* out) {
  uint64_t segment = message.segments == 1 ? 0 : offset / message.segment_bytes;
  uint64_t position = offset - segment * message.segment_bytes;
  for (uint64_t done = 0; done < bytes; ++segment, position = 0) {
    const uint64_t part = least(bytes - done, message.segment_bytes - position);
    uint64_t valid = part;
    Piece src;
    Piece dst;
    if constexpr (S::reads) {
      src = locate(run, task.regions[step.src.buffer], step.src, message, segment, position);
      valid = least(valid, src.bytes);
    }
    if constexpr (S::writes) {
      dst = locate(run, task.regions[step.dst.buffer], step.dst, message, segment, position);
      valid = least(valid, dst.bytes);
    }
    const bool streams = S::writes && task.regions[step.dst.buffer].streams != 0;
    combine<S>(block, streams, S::receives ? in + done : nullptr, src.at, dst.at, S::sends ? out + done : nullptr,
               valid);
    // Never sends undefined data: a chunk that is shorter than nominal is padded with zeros.
    if constexpr (S::sends) {
      if (valid < part && in != out) block.zero(out + done + valid, part - valid);
    }
    done += part;
  }
}

// A step that uses the threadblock's connections. False: it has to wait; the part that it has moved stays moved.
template <class Protocol, class S, class Block, class R>
GC3_HOST_DEVICE bool transfer(Block& block, const R& run, Task& task, const Step& step) {
  if constexpr (requires { Protocol::template exchange<S>(block, run, task, step); }) {
    return Protocol::template exchange<S>(block, run, task, step);  // a protocol that moves messages in its own way
  }
  if constexpr (S::receives) {
    if (!Protocol::input_ready(block, run, task.recv)) {
      task.waiting = Waiting::input;
      return false;
    }
  }
  if constexpr (S::sends) {
    if (!credit_ready(block, run, task.send)) {
      task.waiting = Waiting::credit;
      return false;
    }
  }
  const auto message = message_of(run, task.tile, step);
  const uint64_t total = wire_bytes(message);
  const uint64_t piece = Protocol::template piece_bytes<Block>(total);
  alignas(64) uint8_t stage[Block::template stage_bytes<Protocol>()];
  for (uint64_t offset = task.offset + block.thread() * piece; offset < total; offset += block.threads() * piece) {
    const uint64_t bytes = least(piece, total - offset);
    const uint8_t* in = nullptr;
    uint8_t* out = nullptr;
    if constexpr (S::receives) {
      in = Protocol::load(block, run, task.recv, offset, bytes, stage);
      if (in == nullptr) {
        task.offset = offset;
        task.waiting = Waiting::input;
        return false;
      }
    }
    if constexpr (S::sends) out = Protocol::target(run, task.send, offset, stage);
    move_piece<S>(block, run, task, step, message, offset, bytes, in, out);
    if constexpr (S::sends) Protocol::store(block, run, task.send, offset, bytes, out);
  }
  block.sync();  // every thread has finished with the slots before they change owner
  task.offset = 0;
  if constexpr (S::sends) {
    Protocol::post(block, run, task.send);
    if constexpr (requires { block.expect_write(slot_of(run, task.send), total); }) {
      block.expect_write(slot_of(run, task.send), total / Protocol::kLineData * Protocol::kLineBytes);
    }
  }
  if constexpr (S::receives) release_slot(block, run, task.recv);
  return true;
}

// A step within the rank.
template <class S, class Block, class R>
GC3_HOST_DEVICE bool within_rank(Block& block, const R& run, const Task& task, const Step& step) {
  const auto message = message_of(run, task.tile, step);
  const uint64_t total = bytes_of(message);
  const uint64_t piece = Simple::piece_bytes<Block>(total);
  for (uint64_t offset = block.thread() * piece; offset < total; offset += block.threads() * piece) {
    move_piece<S>(block, run, task, step, message, offset, least(piece, total - offset), nullptr, nullptr);
  }
  block.sync();  // other threads may use the result in the next step
  return true;
}

// The properties of an opcode at run time.
struct Does {
  bool receives = false;
  bool sends = false;
  bool reads = false;
  bool writes = false;
  bool reduces = false;
};

GC3_HOST_DEVICE constexpr Does row_of(Op op) {
  switch (op) {
#define GC3_OPCODE(name, xml, receives, sends, reads_local, writes_local, reduces, doc) \
  case Op::name:                                                                        \
    return {receives, sends, reads_local, writes_local, reduces};
#include "gc3/ir/opcodes.def"
#undef GC3_OPCODE
  }
  return {};
}

// A bit for each opcode: of a switch a device makes a chain of branches.
template <bool Does::* kProperty>
GC3_HOST_DEVICE constexpr uint32_t opcodes_that() {
  uint32_t found = 0;
  for (uint32_t op = 0; op < 32; ++op) found |= (row_of(static_cast<Op>(op)).*kProperty ? 1U : 0U) << op;
  return found;
}
GC3_HOST_DEVICE Does does_of(Op op) {
  constexpr uint32_t kReceive = opcodes_that<&Does::receives>();
  constexpr uint32_t kSend = opcodes_that<&Does::sends>();
  constexpr uint32_t kRead = opcodes_that<&Does::reads>();
  constexpr uint32_t kWrite = opcodes_that<&Does::writes>();
  constexpr uint32_t kReduce = opcodes_that<&Does::reduces>();
  const uint32_t bit = 1U << static_cast<uint32_t>(op);
  return {(kReceive & bit) != 0, (kSend & bit) != 0, (kRead & bit) != 0, (kWrite & bit) != 0, (kReduce & bit) != 0};
}

// Any step but a nop, on a Block with `carry(run, task, step, does)`, which moves a whole message with all
// threads, through the lines of the protocol if the step receives or sends, and ends with a barrier. False, on all
// threads alike: the run is aborted.
template <class Protocol, class Block>
GC3_HOST_DEVICE bool carry_message(Block& block, const Run& run, Task& task, const Step& step) {
  const Does does = does_of(step.opcode);
  if (does.receives && !Protocol::input_ready(block, run, task.recv)) {
    task.waiting = Waiting::input;
    return false;
  }
  if (does.sends && !credit_ready(block, run, task.send)) {
    task.waiting = Waiting::credit;
    return false;
  }
  if (!block.template carry<Protocol>(run, task, step, does)) {
    task.waiting = Waiting::input;
    return false;
  }
  if (does.sends) Protocol::post(block, run, task.send);
  if (does.receives) release_slot(block, run, task.recv);
  return true;
}

// A step of any opcode, on other Blocks.
template <class Protocol, class S, class Block, class R>
GC3_HOST_DEVICE bool perform(Block& block, const R& run, Task& task, const Step& step) {
  if constexpr (S::receives || S::sends) {
    return transfer<Protocol, S>(block, run, task, step);
  } else if constexpr (S::writes) {
    return within_rank<S>(block, run, task, step);
  } else {
    return true;
  }
}

template <class Protocol, class Block, class R>
GC3_HOST_DEVICE bool execute_in_pieces(Block& block, const R& run, Task& task, const Step& step) {
  switch (step.opcode) {
#define GC3_OPCODE(name, xml, receives, sends, reads_local, writes_local, reduces, doc) \
  case Op::name:                                                                        \
    return perform<Protocol, Shape<receives, sends, reads_local, writes_local, reduces>>(block, run, task, step);
#include "gc3/ir/opcodes.def"
#undef GC3_OPCODE
  }
  return true;
}

// False: the step has to wait.
template <class Protocol, class Block, class R>
GC3_HOST_DEVICE bool execute(Block& block, const R& run, Task& task, const Step& step) {
  if constexpr (requires { block.compute(run, task, step); }) {
    if (step.opcode == Op::apply) return block.compute(run, task, step);
  }
  if constexpr (requires { block.template carry<Protocol>(run, task, step, Does{}); }) {
    return step.opcode == Op::nop || carry_message<Protocol>(block, run, task, step);
  } else {
    return execute_in_pieces<Protocol>(block, run, task, step);
  }
}

// The value of a semaphore once `steps` steps of tile `tile` of this run are finished. Tiles are numbered through all
// runs, so semaphores only ever grow.
GC3_HOST_DEVICE uint64_t semaphore_value(uint64_t first_tile, uint64_t tile, uint64_t step_count, uint64_t steps) {
  return (first_tile + tile) * step_count + steps;
}
template <class Block>
GC3_HOST_DEVICE uint64_t first_tile(const Block& block, const Run& run) {
  if constexpr (requires { block.first_tile(); }) {
    return block.first_tile();
  } else {
    return run.first_tile;
  }
}

// The acquire pairs with the publishing threadblock's post: what its step wrote is visible, what it read is read.
template <class Block>
GC3_HOST_DEVICE bool dependencies_met(Block& block, const Run& run, Task& task, const Step& step) {
  for (uint32_t i = step.wait_begin; i < step.wait_begin + step.wait_count; ++i) {
    const Wait& wait = task.waits[i];
    const uint64_t value = semaphore_value(first_tile(block, run), task.tile, wait.step_count, wait.steps);
    if (block.await(&task.semaphores[wait.tb], value) < value) {
      task.waiting = Waiting::dependency;
      task.wait = i;
      return false;
    }
  }
  return true;
}

// Executes at most `budget` steps, or all of them on a Block that is kEndless. A task whose tiles are all finished
// returns `finished`, however often it is called.
template <class Protocol, class Block, class R>
GC3_HOST_DEVICE Outcome advance(Block& block, const R& run, Task& task, uint32_t budget) {
  if (task.tile == run.tiles || task.step_count == 0) return Outcome::finished;
  constexpr bool kRecords = requires { block.recorder(); };
  if constexpr (kRecords) block.recorder().turn();
  bool progressed = false;
  constexpr bool kCounts = !requires { Block::kEndless; };
  for (; budget != 0; budget -= kCounts ? 1 : 0) {
    const Step& step = task.steps[task.step];
    const uint64_t offset = task.offset;
    if (!dependencies_met(block, run, task, step) || !execute<Protocol>(block, run, task, step)) {
      if constexpr (kRecords) block.recorder().wait(task, task.offset != offset);
      return progressed || task.offset != offset ? Outcome::progressed : Outcome::blocked;
    }
    if constexpr (kRecords) block.recorder().done(run, task);
    progressed = true;
    task.waiting = Waiting::nothing;
    // Reads the step again, so that `step` need not be kept in a register during execution, which ended with a barrier
    // or was a nop.
    if (task.steps[task.step].publishes != 0) {
      block.post(&task.semaphores[task.tb],
                 semaphore_value(first_tile(block, run), task.tile, task.step_count, task.step + 1));
    }
    if (++task.step == task.step_count) {
      task.step = 0;
      if (++task.tile == run.tiles) return Outcome::finished;
    }
  }
  return Outcome::progressed;
}

}  // namespace gc3::interp
