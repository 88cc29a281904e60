// What a simulated run gives: times, use of the machine, and on demand what happened, operation by operation.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/sim/machine.h"

namespace gc3::sim {

// What an operation waited for before it started, or what decided when it ended.
enum class Cause : std::uint8_t {
  launch,      // the kernel's start
  program,     // the threadblock's previous operation; as a cause of the end: the threadblock's own rate
  input,       // data to arrive
  credit,      // a free slot
  semaphore,   // another threadblock of the rank
  link,        // a resource of the machine, taken or slow
  connection,  // the connection's own limit
  core,        // the processor that the rank shares with others
  latency,     // data under way
};
inline constexpr std::size_t kCauseCount = 9;
inline constexpr const char* kCauseNames[kCauseCount] = {"launch", "threadblock", "receive", "credit", "semaphore",
                                                         "link",   "connection",  "core",    "latency"};

// One slice of one instruction.
struct Record {
  Time ready = 0;      // the threadblock had come so far
  Time start = 0;      // nothing was left to wait for
  Time end = 0;        // the threadblock goes on
  Time delivered = 0;  // of what sends: the last byte has left; the receiver has it a latency later
  std::uint64_t bytes = 0;
  std::uint32_t tb = 0;
  std::uint32_t step = 0;
  std::uint32_t tile = 0;
  std::uint32_t before = kNone;    // the record whose end, delivery or return of a slot `start` waited for
  std::uint32_t resource = kNone;  // where `delivered_by` is link
  std::uint32_t sent_by = kNone;   // of what receives: the record that sent it
  std::uint16_t slice = 0;
  Cause wait = Cause::program;          // why start > ready; `program`: it did not wait
  Cause delivered_by = Cause::program;  // program (its own rate), link, connection, or input (it arrived no earlier)
  std::uint32_t sends = 0;              // 1: it sends
};

struct ResourceUse {
  Time busy = 0;
  std::uint64_t bytes = 0;
};

struct Outcome {
  Time time = 0;                 // until the last rank is done
  std::uint64_t slice_ops = 0;   // what the engine executed: slices of instructions that move data
  std::vector<Time> rank_end;    // per rank
  std::vector<ResourceUse> use;  // per resource of the machine
  std::vector<Record> records;   // in the order of their start, if asked for
};

}  // namespace gc3::sim
