#include "gc3/sim/serial.h"

namespace gc3::sim {

Result<Outcome> run_serial(const Simulator& simulator, const Call& call, const Options& options) {
  std::vector<Time> free(simulator.machine().data().resources.size());
  return Serial(simulator, call, options, free).run();
}

}  // namespace gc3::sim
