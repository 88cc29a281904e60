// Who this process is among those that a launcher started: torchrun, mpirun of Open MPI or MPICH, srun, or a script.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/base/knobs.h"
#include "gc3/base/result.h"

namespace gc3 {

struct Launch {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  // The same on all ranks of a job and different for jobs that run at once on a host. Empty: the launcher gives no
  // name.
  std::string job;
};

// Of several launchers' variables, the first complete pair of rank and size in the order of docs/processes.md counts.
Result<Launch> read_launch(const Environment& environment);

}  // namespace gc3
