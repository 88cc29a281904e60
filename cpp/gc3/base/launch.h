// The rank of this process in its job, as the launcher set it: torchrun, mpirun of Open MPI or MPICH, srun, or a
// script.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/base/knobs.h"
#include "gc3/base/result.h"

namespace gc3 {

struct Launch {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  // The same on all ranks of a job, and different for jobs that run on a host at the same time. Empty: the launcher
  // sets no name.
  std::string job;
};

// Takes the first complete pair of rank and size; docs/processes.md gives the order of the launchers' variables.
Result<Launch> read_launch(const Environment& environment);

}  // namespace gc3
