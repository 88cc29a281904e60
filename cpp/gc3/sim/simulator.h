// A program on a machine, ready to be run at any size: everything that does not depend on the call is computed once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/program.h"
#include "gc3/sim/classes.h"
#include "gc3/sim/machine.h"
#include "gc3/sim/outcome.h"
#include "gc3/sim/timing.h"
#include "gc3/sim/wiring.h"

namespace gc3::sim {

class Simulator {
 public:
  // Both must outlive the simulator. Rank r of the program is rank places[r] of the machine; without places, rank r.
  static Result<Simulator> create(const ir::Program& program, const Machine& machine,
                                  const std::vector<std::uint32_t>& places = {});

  // The same of a program of which one rank stands for all: of one rank of each class of those that are alike on the
  // machine (see classes.h), at the cost of these, if no call makes ranks differ; with `apart`, of each rank, with the
  // same times. The program need not outlive it.
  static Result<Simulator> create(const ir::ClassProgram& program, const Machine& machine,
                                  const std::vector<std::uint32_t>& places = {}, bool apart = false);

  // The time of a call. A program that cannot finish with this many slots is an error that names the cycle of waits.
  Result<Outcome> run(const Call& call, const Options& options) const;
  // Refuses calls that take too many operations to count, or instructions of too many slices.
  Status check_work(const Call& call, const ProtocolTiming& protocol) const;
  // About how many slice operations `run` will execute.
  std::uint64_t work(const Call& call, const ProtocolTiming& protocol) const;
  // The bytes of all slots that data goes through.
  std::uint64_t slot_bytes(const Call& call, const ProtocolTiming& protocol) const;

  const ir::Program& program() const { return *program_; }
  const Classes* classes() const { return classes_.get(); }  // null: each rank is simulated
  const Machine& machine() const { return *machine_; }
  const Wiring& wiring() const { return classes_ ? classes_->wiring : wiring_; }

 private:
  Simulator(const ir::Program& program, const Machine& machine) : program_(&program), machine_(&machine) {}

  const ir::Program* program_;
  const Machine* machine_;
  Wiring wiring_;
  std::shared_ptr<const Classes> classes_;
};

}  // namespace gc3::sim
