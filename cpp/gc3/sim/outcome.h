// The result of a simulated run: times, use of the machine, and on request a record of each operation.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/sim/machine.h"

namespace gc3::sim {

// The cause that an operation waited for before it started, or that decided when it ended.
enum class Cause : std::uint8_t {
  launch,      // the kernel's start
  program,     // the threadblock's previous operation; as a cause of the end: the threadblock's own rate
  input,       // data to arrive
  credit,      // a free slot
  semaphore,   // another threadblock of the rank
  link,        // a resource of the machine, busy or slow
  connection,  // the connection's own limit
  core,        // the processor that the rank shares with others
  latency,     // data in flight
  receiver,    // the receiver of a rendezvous, and the messages that it takes
  compute,     // a compute operation
};
inline constexpr std::size_t kCauseCount = 11;
inline constexpr const char* kCauseNames[kCauseCount] = {"launch",    "threadblock", "receive",    "credit",
                                                         "semaphore", "link",        "connection", "core",
                                                         "latency",   "rendezvous",  "compute"};

// One slice of one instruction.
struct Record {
  Time ready = 0;      // the previous operation of the threadblock ended
  Time due = 0;        // it could start, but for the processor that ranks or threadblocks share
  Time start = 0;      // all waits have ended
  Time end = 0;        // the threadblock continues
  Time delivered = 0;  // of a send: the last byte has left; the receiver has it a latency later
  std::uint64_t bytes = 0;
  std::uint32_t tb = 0;
  std::uint32_t step = 0;
  std::uint32_t tile = 0;
  std::uint32_t before = kNone;    // the record whose end, delivery or return of a slot `due` waited for
  std::uint32_t resource = kNone;  // if delivered_by is link
  std::uint32_t sent_by = kNone;   // of a receive: the record that sent its data
  std::uint16_t slice = 0;
  Cause wait = Cause::program;          // why due > ready; `program`: it did not wait
  Cause delivered_by = Cause::program;  // program (its own rate), compute, link, connection, or input (data arrived)
  std::uint32_t sends = 0;              // 1: it sends
};

struct ResourceUse {
  Time busy = 0;
  std::uint64_t bytes = 0;
};

struct Outcome {
  Time time = 0;                 // until the last rank has finished
  std::uint64_t slice_ops = 0;   // the work of the engine: slices of instructions that move data
  std::vector<Time> rank_end;    // per rank
  std::vector<ResourceUse> use;  // per resource of the machine
  std::vector<Record> records;   // in the order of their start, if requested
};

}  // namespace gc3::sim
