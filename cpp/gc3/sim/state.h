// What an execution knows of its threadblocks and connections.
#pragma once

#include <cstdint>

#include "gc3/sim/outcome.h"
#include "gc3/sim/wiring.h"

namespace gc3::sim {

enum class Phase : std::uint8_t {
  due,
  busy,
  publishes,
  needs_input,
  needs_credit,
  needs_receiver,
  needs_step,
  finished
};

inline const char* waits_text(Phase phase) {
  return phase == Phase::needs_input      ? " waits for a message from "
         : phase == Phase::needs_credit   ? " waits for a free slot of "
         : phase == Phase::needs_receiver ? " waits for the receive of "
                                          : " waits for ";
}

// A threadblock: one cache line, because large programs have hundreds of thousands of them.
struct alignas(64) Block {
  Time ready = 0;  // when its turn for the next slice comes
  Time at = 0;     // when the next slice can start, as far as is known
  std::uint32_t tile = 0;
  std::uint32_t step = 0;
  std::uint32_t step_count = 0;
  std::uint32_t first_instruction = 0;
  std::uint32_t sending = kNone;
  std::uint32_t receiving = kNone;
  std::uint32_t rank = 0;
  std::uint32_t first_waiter = kNone;  // threadblocks that wait for a step of this one
  std::uint32_t next_waiter = kNone;   // the next in such a list
  std::uint32_t awaits = 0;            // needs_step: the threadblock it waits for
  std::uint32_t before = kNone;        // the record that ended the latest wait
  std::uint16_t slice = 0;
  Phase phase = Phase::due;
  Cause wait = Cause::launch;  // of the next slice

  void delay(Time until, Cause cause, std::uint32_t record) {
    if (until <= at) return;
    at = until;
    wait = cause;
    before = record;
  }
  std::uint64_t steps_done() const { return std::uint64_t{tile} * step_count + step; }
};

// Units are slices; a message always takes all units of its slot, however short it is.
struct Connection {
  Time free = 0;                // its own limit
  std::uint32_t posted = 0;     // units
  std::uint32_t under_way = 0;  // further units, of slices that have begun and are not posted yet
  std::uint32_t consumed = 0;

  // The unit of the next slice that begins.
  std::uint32_t next() const { return posted + under_way; }
  std::uint32_t send_tb = 0;
  std::uint32_t recv_tb = 0;
  Slice out;
  Slice into;
  std::uint16_t link_class = 0;
  bool near = false;  // both ends are on one processor
  bool receiver_waits = false;
  bool sender_waits = false;
};

// A compute operation. The operations of a rank take place one after the other, in whatever threadblocks they are.
struct Computed {
  Time end = 0;
  std::uint32_t record = kNone;
};

struct Unit {
  Time first = 0;   // the receiver may start
  Time last = 0;    // and has all data
  Time credit = 0;  // the sender may use it again
};

}  // namespace gc3::sim
