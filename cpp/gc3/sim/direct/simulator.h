// Simulates a one-sided program: threadblocks load from and store into the memory of other ranks, and counters say
// when.
//
// A move is cut into pieces. A threadblock has asked for `in_flight` bytes of every source at most, so its rate is that
// over the time of a load, unless links are slower; all sources of a piece are loaded at once, which is one pass over a
// sum of several. What is stored leaves when it has been loaded, and the threadblock goes on; only a release signal
// waits until it has arrived. Links are those of the machine, which serve one piece after the other (see ../serial.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/direct/program.h"
#include "gc3/sim/machine.h"
#include "gc3/sim/outcome.h"
#include "gc3/sim/timing.h"
#include "gc3/sim/wiring.h"

namespace gc3::sim::direct {

// How the threadblocks of a rank move data, and see what others do. The latency of a link class is that of a store: it
// has arrived, or a signal is seen. A load takes twice as long.
struct Timing {
  double op_s = 0;               // of every step
  double bytes_per_s = 0;        // that a multiprocessor loads; it stores half as many
  std::uint64_t in_flight = 0;   // bytes of each source
  double local_s = 0;            // of a load from the own memory; until another threadblock there sees something
  double release_s = 0;          // of a release signal, besides waiting for what it orders
  double proxy_s = 0;            // of the proxy of a port channel, for each move and signal
  std::uint32_t processors = 0;  // multiprocessors of a rank, to which its threadblocks are dealt; 0: one for each
};

struct Options {
  Timing timing;
  Start start;
  bool record = false;  // of each step, for `explain`
};

// The resources that an operand occupies; of an own buffer only the memory.
struct Way {
  Slice taken;
  Time hop = 0;
  double carried = 1;  // bytes there for each byte of data
  bool remote = false;
};

struct Wired {
  const ir::direct::Program* program = nullptr;
  const Machine* machine = nullptr;
  std::vector<std::uint32_t> rank_of;    // by threadblock
  std::vector<std::uint32_t> resources;  // of all ways
  std::vector<Way> ways;                 // by operand
  std::vector<Time> hops;                // by channel
};

// "rank 1 threadblock 0 step 3 (signal 2)".
std::string step_name(const Wired& wired, std::uint32_t tb, std::uint32_t step);

class Simulator {
 public:
  // Both must outlive it. Rank r of the program is rank places[r] of the machine; without places, rank r. Refuses ranks
  // that address each other between nodes, and groups that no switch adds up for.
  static Result<Simulator> create(const ir::direct::Program& program, const Machine& machine,
                                  const std::vector<std::uint32_t>& places = {});

  // The time of a call in which every chunk has `chunk_bytes`. A program that cannot finish is an error.
  Result<Outcome> run(std::uint64_t chunk_bytes, const Options& options) const;
  // About how many pieces `run` will move.
  std::uint64_t work(std::uint64_t chunk_bytes, const Timing& timing) const;
  const std::vector<std::uint32_t>& rank_of() const { return wired_.rank_of; }
  std::string step_name(std::uint32_t tb, std::uint32_t step) const { return direct::step_name(wired_, tb, step); }

 private:
  explicit Simulator(Wired wired) : wired_(std::move(wired)) {}

  Wired wired_;
};

}  // namespace gc3::sim::direct
